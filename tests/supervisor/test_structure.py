"""Rules of the supervisor's code that its readers rely on."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import rtagent

PACKAGE = Path(rtagent.__file__).parent
FILES = sorted([*PACKAGE.glob("supervisor/*.py"), *PACKAGE.glob("r3/*.py")])


def attributes_written(node: ast.AST) -> Iterator[ast.Attribute]:
    for each in ast.walk(node):
        if isinstance(each, ast.Attribute) and isinstance(each.ctx, ast.Store):
            yield each


def own(node: ast.AST) -> set[str]:
    """Attributes of `self` that a function assigns."""
    return {
        each.attr
        for each in attributes_written(node)
        if isinstance(each.value, ast.Name) and each.value.id == "self"
    }


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_no_attribute_appears_outside_init(path: Path) -> None:
    for node in ast.walk(ast.parse(path.read_text())):
        if not isinstance(node, ast.ClassDef):
            continue
        methods = [each for each in node.body if isinstance(each, ast.FunctionDef)]
        fields = {  # of a dataclass
            each.target.id
            for each in node.body
            if isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name)
        }
        decorated = bool(node.decorator_list)
        first = {name for each in methods if each.name == "__init__" for name in own(each)}
        later = {name for each in methods if each.name != "__init__" for name in own(each)}
        assert later <= first | (fields if decorated else set())


def test_one_function_alone_writes_the_state_of_a_child() -> None:
    writers = [
        (path.stem, function.name)
        for path in PACKAGE.glob("supervisor/*.py")
        for function in ast.walk(ast.parse(path.read_text()))
        if isinstance(function, ast.FunctionDef)
        and any(each.attr == "state" for each in attributes_written(function))
    ]
    assert writers == [("child", "_enter")]
