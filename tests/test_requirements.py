"""What is installed is what was pinned, and checked by its hash."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
BY_HAND = {
    "cpprb", "hoptorch", "importlib-metadata", "lazy-importer", "orjson", "pyvers", "tensordict",
    "torchrl", "zipp",
}
"""Of the extra `bench`, which no script installs."""


def pins(text: str) -> dict[str, str]:
    """Version of each package, by its name as the index spells it."""
    found = re.findall(r"(?m)^([A-Za-z0-9._-]+)==([^\s;]+)", text)
    return {re.sub(r"[-_.]+", "-", name).lower(): version for name, version in found}


def locked(name: str) -> dict[str, str]:
    return pins((ROOT / "requirements" / f"{name}.txt").read_text())


CONSTRAINTS = pins((ROOT / "constraints.txt").read_text())


@pytest.mark.parametrize("name", ["torch", "base", "docs", "dev"])
def test_every_package_has_a_hash_and_the_version_that_is_pinned(name: str) -> None:
    text = (ROOT / "requirements" / f"{name}.txt").read_text()
    for block in re.split(r"\n(?=\S)", text)[1:]:
        assert re.search(r"--hash=sha256:[0-9a-f]{64}", block), block[:60]
    for package, version in locked(name).items():
        # Another platform's own; here it is never installed.
        if package != "colorama":
            assert CONSTRAINTS[package] == version, f"{package}: run scripts/lock"


def test_what_is_pinned_is_locked() -> None:
    assert locked("base").items() <= locked("dev").items()
    scripts_install = {package for name in ("torch", "dev", "docs") for package in locked(name)}
    assert set(CONSTRAINTS) - scripts_install == BY_HAND
    assert "setuptools" in locked("base"), "it builds rtagent"


def test_what_rtagent_needs_is_locked() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    needed = {
        re.sub(r"[-_.]+", "-", re.match(r"[A-Za-z0-9._-]+", each)[0]).lower()  # type: ignore[index]
        for each in project["dependencies"]
    }
    assert needed <= {*locked("torch"), *locked("base")}
