"""`rtagent config`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rtagent.config import Config
from rtagent.config_reading import load_config
from tests.cli.conftest import Run


def test_what_is_shown_reads_back(run: Run, tmp_path: Path) -> None:
    overrides = (
        "env.id=CartPole-v1",
        'env.kwargs={ "a key" = [1, 2.5, true, "so \\"quoted\\""], nested = { x = "y" } }',
        "env.default_action=[0.5, -1e-9]",
        "policy.factory=package.module:build",
        "learning.learning_rate=1e-5",
        "run.state_dir=/tmp/a b",
    )
    options = [part for item in overrides for part in ("--set", item)]
    shown = run("config", "show", *options)
    assert shown.code == 0
    file = tmp_path / "shown.toml"
    file.write_text(shown.out)
    assert load_config(file, (), {}) == load_config(None, overrides, {})


def test_what_is_not_set_is_a_comment(run: Run) -> None:
    assert "\n# action_deadline_ms: not set\n" in run("config", "show").out


def test_show_as_json(run: Run) -> None:
    shown = json.loads(run("config", "show", "--json", "--set", "inference.processes=7").out)
    assert shown["inference"]["processes"] == 7
    assert list(shown) == list(Config.model_fields)


def test_the_schema_describes_every_key(run: Run) -> None:
    schema = json.loads(run("config", "schema").out)
    assert set(schema["properties"]) == set(Config.model_fields)
    for name, section in schema["$defs"].items():
        for key, entry in section["properties"].items():
            assert entry.get("description"), f"{name}.{key}"


def test_a_missing_file_is_one_line(run: Run, tmp_path: Path) -> None:
    refused = run("config", "show", "--config", str(tmp_path / "none.toml"))
    assert refused.code == 2
    assert "none.toml: No such file" in refused.err


@pytest.mark.parametrize("action", [(), ("erase",)])
def test_wrong_actions(run: Run, action: tuple[str, ...]) -> None:
    assert run("config", *action).code == 2
