"""`rtagent config`."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from rich.console import Console

from benchmarks.daemon import options
from rtagent.cli import config as config_command
from rtagent.cli.config import keys
from rtagent.config import Config
from rtagent.config_sources import all_keys, load_config
from tests.cli.conftest import Run


def test_what_is_shown_reads_back(run: Run, tmp_path: Path) -> None:
    overrides = (
        "env.id=CartPole-v1",
        'env.kwargs={ "a key" = [1, 2.5, true, "so \\"quoted\\""], nested = { x = "y" } }',
        "env.default_action=[0.5, -1e-9]",
        "policy.factory=package.module:build",
        "learning.learning_rate=1e-5",
        "run.state_dir=/tmp/a b\x7f😀",
    )
    shown = run("config", "show", *options(*overrides))
    assert shown.code == 0
    file = tmp_path / "shown.toml"
    file.write_text(shown.out)
    assert load_config(file, (), {}) == load_config(None, overrides, {})


def test_what_is_not_set_is_a_comment(run: Run) -> None:
    assert "\n# action_deadline_ms: not set\n" in run("config", "show").out


def test_show_as_json(run: Run) -> None:
    shown = run("config", "show", "--json", "--set", "inference.processes=7").document()
    assert shown["inference"]["processes"] == 7
    assert list(shown) == list(Config.model_fields)


def test_the_schema_describes_every_key(run: Run) -> None:
    schema = run("config", "schema", "--json").document()
    assert schema == run("config", "schema", "--format", "json").document()
    assert set(schema["properties"]) == set(Config.model_fields)
    for name, section in schema["$defs"].items():
        for key, entry in section["properties"].items():
            assert entry.get("description"), f"{name}.{key}"


def test_the_schema_is_a_table_of_every_key(run: Run) -> None:
    lines = run("config", "schema").out.splitlines()
    assert lines[0].split() == ["key", "values", "default", "meaning"]
    assert [line.split()[0] for line in lines[1:] if line[0] != " "] == all_keys()


@pytest.mark.parametrize("width", [40, 80])
def test_a_narrow_terminal_shows_all_of_the_schema(
    run: Run, monkeypatch: pytest.MonkeyPatch, width: int
) -> None:
    console = Console(file=io.StringIO(), width=width)
    monkeypatch.setattr(config_command, "stdout", lambda: console)
    assert run("config", "schema").code == 0
    assert isinstance(console.file, io.StringIO)
    heading, first, *_ = console.file.getvalue().splitlines()
    assert heading.split() == ["key", "values", "default", "meaning"]
    key, values, default, meaning, *_ = first.split()
    assert (key, values, default[:4], meaning) == ("env.id", "text", '"rta', "A")


def test_the_schema_as_markdown(run: Run) -> None:
    lines = run("config", "schema", "--format", "markdown").out.splitlines()
    assert [line[3:] for line in lines if line.startswith("## ")] == list(Config.model_fields)
    rows = [line for line in lines if line.startswith("| `")]
    assert len(rows) == len(all_keys())
    assert all(len(row.replace("\\|", "").split("|")) == 6 for row in rows)


@pytest.mark.parametrize(("key", "values", "default"), [
    ("inference.processes", "integer, 1 to 256, or auto", "2"),
    ("inference.action_deadline_ms", "number, above 0, at most 60000", ""),
    ("env.grayscale", "true | false", "true"),
    ("learning.discount", "ticks | decisions", '"ticks"'),
    ("env.image_size", "integer, 16 to 512, or list of integer, 16 to 512", "84"),
    ("run.state_dir", "path", '"~/.local/state/rtagent"'),
])
def test_what_the_table_says(key: str, values: str, default: str) -> None:
    found = {f"{each.section}.{each.name}": each for each in keys()}
    assert (found[key].values, found[key].default) == (values, default)
