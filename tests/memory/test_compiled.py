"""What is written in C: it is compiled at the installation, and nothing else needs it."""

from __future__ import annotations

import shutil
import subprocess
import tomllib
from pathlib import Path
from types import SimpleNamespace

import pytest

from rtagent.memory import compiled
from tests.installed import needs, require
from tests.refused import one_line

ROOT = Path(__file__).parents[2]
needs_compiler = needs(shutil.which("gcc"), "a C compiler")


def sources() -> list[str]:
    """Sources of the library, as the installation compiles it."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]
    (module,) = settings["ext-modules"]
    assert module["optional"]
    return list(module["sources"])


@needs_compiler
def test_the_installation_has_compiled_it() -> None:
    assert compiled.compiled_fence() is not None
    names = (
        "gather look_up intact sum_tree_draw search priorities pixels adam max_pool"
        " max_pool_backward"
    )
    for name in names.split():
        assert compiled.compiled(f"rtagent_{name}") is not None, name


@needs_compiler
def test_a_library_of_another_version_is_refused_in_one_line() -> None:
    """It was an AttributeError, with a traceback, after the files of a checkout had changed."""
    with one_line("no rtagent_future: install rtagent again"):
        compiled.compiled("rtagent_future")


def test_every_source_is_compiled() -> None:
    found = {str(path.relative_to(ROOT)) for path in (ROOT / "rtagent").rglob("*.c")}
    # The games' sources are another compiler's.
    ours = {name for name in found if not name.startswith("rtagent/env/gameboy/roms")}
    assert ours == set(sources())


@pytest.mark.parametrize("compiler", ["gcc", "aarch64-linux-gnu-gcc"])
def test_the_compiler_finds_nothing_to_warn_of(compiler: str) -> None:
    require(shutil.which(compiler), compiler)
    warnings = ["-Wall", "-Wextra", "-Wconversion", "-Wshadow", "-Werror"]
    subprocess.run(
        [compiler, "-std=c11", "-O2", *warnings, "-fsyntax-only", *sources()], cwd=ROOT, check=True
    )


@pytest.mark.parametrize(
    "spec", [None, SimpleNamespace(origin=None), SimpleNamespace(origin="/nothing/here.so")]
)
def test_without_the_library_there_is_no_function(
    spec: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: spec)
    monkeypatch.setattr(compiled, "_library", compiled._library.__wrapped__)
    assert compiled.compiled("rtagent_gather") is None
