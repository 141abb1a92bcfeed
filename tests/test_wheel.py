"""The wheels: installed where there is neither the checkout nor a compiler, they serve."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

import httpx
import pytest

from rtagent import __version__
from tests.conftest import eventually
from tests.installed import needs

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with what `scripts/wheel` builds."""
    folder = tmp_path_factory.mktemp("wheels")
    subprocess.run(
        [ROOT / "scripts" / "wheel", folder], check=True, stdout=subprocess.DEVNULL,
        env={**os.environ, "PYTHON": sys.executable},
    )
    return folder


def installed(folder: Path, wheel: Path) -> Path:
    """The `rtagent` of a fresh environment, which sees the packages that rtagent needs here."""
    venv.create(folder, symlinks=True)
    python = folder / "bin" / "python"
    pip = [sys.executable, "-m", "pip", "--python", python, "install", "-q", "--no-deps", wheel]
    subprocess.run(pip, check=True, capture_output=True)
    # Of a folder that a .pth names, no .pth is read: the checkout's own stays out of sight.
    packages = next(folder.glob("lib/python*/site-packages"))
    (packages / "needed.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return folder / "bin" / "rtagent"


def run(program: Path, *arguments: object, cwd: Path) -> str:
    """What a program prints in an empty folder, with neither compiler nor settings around."""
    return subprocess.run(
        [program, *map(str, arguments)], cwd=cwd, env=bare(cwd), check=True, text=True,
        stdout=subprocess.PIPE, timeout=300,
    ).stdout


def bare(home: Path) -> dict[str, str]:
    """An environment in which nothing is found."""
    return {"PATH": "/nonexistent", "HOME": str(home)}


def page(state: Path, path: str) -> str:
    """What the daemon of a state directory answers; empty until it does."""
    note = state / "daemon.json"
    if not note.exists():
        return ""
    token = (state / "token").read_text().strip()
    try:
        answer = httpx.get(
            json.loads(note.read_text())["url"] + path,
            headers={"Authorization": f"Bearer {token}"}, trust_env=False,
        )
    except httpx.HTTPError:
        return ""
    return answer.text if answer.is_success else ""


@pytest.mark.process
def test_the_pure_wheel_serves(wheels: Path, tmp_path: Path) -> None:
    wheel = wheels / f"rtagent-{__version__}-py3-none-any.whl"
    rtagent, empty = installed(tmp_path / "venv", wheel), tmp_path / "empty"
    empty.mkdir()
    code = "import rtagent, rtagent.memory.compiled as c; print(rtagent.__file__, c._library())"
    where = run(rtagent.with_name("python"), "-c", code, cwd=empty)
    assert where.startswith(str(tmp_path)), "not the checkout's"
    assert where.split()[-1] == "None", "NumPy does it"
    assert "injected_latency_ms = 82" in run(
        rtagent, "config", "show", "--config", "examples/injected_latency.toml", cwd=empty
    )
    state = empty / "state"
    daemon = subprocess.Popen(
        [rtagent, "serve", "--quiet", "--port", "0", "--state-dir", state,
         "--set", "replay.capacity=20000"], cwd=empty, env=bare(empty),
    )
    try:
        eventually(lambda: json.loads(page(state, "v1/stats") or "{}").get("clock", {}).get(
            "ticks", 0) > 10, "it ticks: the built-in game is in the wheel")
        assert "import" in page(state, "static/main.js")
    finally:
        daemon.terminate()
        assert daemon.wait(120) == 0


@pytest.mark.process
@needs(shutil.which("gcc"), "a C compiler")
def test_the_other_has_the_c_library(wheels: Path, tmp_path: Path) -> None:
    wheel = next(wheels.glob("rtagent-*-linux_*.whl"))
    rtagent = installed(tmp_path / "venv", wheel)
    code = "import rtagent.memory.compiled as c; print(c._library()._name)"
    assert str(tmp_path) in run(rtagent.with_name("python"), "-c", code, cwd=tmp_path)


def test_the_version_is_in_one_place() -> None:
    metadata = (ROOT / "pyproject.toml").read_text()
    assert __version__ not in metadata
    assert f"## [{__version__}]" in (ROOT / "CHANGELOG.md").read_text()
