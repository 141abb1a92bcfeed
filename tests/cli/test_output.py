"""What commands print, and what others print meanwhile."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rtagent.cli import main

LOUD = """
import os
import gymnasium

def world():
    print("from Python")
    os.write(1, b"from a library\\n")
    return gymnasium.make("CartPole-v1")
"""


def test_what_an_environment_prints_is_not_mixed_into_the_result(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "loud_world.py").write_text(LOUD)
    monkeypatch.syspath_prepend(tmp_path)
    options = ("--update-ms", "20", "--inference-ms", "1", "--seconds", "1", "--json")
    assert main(["simulate", "--env", "loud_world:world", *options]) == 0
    out, err = capfd.readouterr()
    assert json.loads(out)["ticks"] == 50
    for printed in ("from Python", "from a library"):
        assert printed in err
