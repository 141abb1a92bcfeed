"""Where the configuration comes from, and what is said of what is wrong with it."""

from __future__ import annotations

from pathlib import Path

import pytest

from rtagent.config import Config
from rtagent.config_reading import load_config
from rtagent.errors import UserError


def _refusal(*overrides: str) -> str:
    with pytest.raises(UserError) as caught:
        load_config(None, overrides, {})
    return str(caught.value)


def test_no_source_gives_the_defaults() -> None:
    assert load_config(None, (), {}) == Config()


def test_the_file_then_the_environment_then_set(tmp_path: Path) -> None:
    file = tmp_path / "run.toml"
    file.write_text("[inference]\nprocesses = 3\nfill = 0\n[learning]\nbatch_size = 16\n")
    environ = {"RTAGENT_INFERENCE__PROCESSES": "4", "RTAGENT_INFERENCE__FILL": "1"}
    config = load_config(file, ["inference.processes=5"], environ)
    assert config.inference.processes == 5
    assert config.inference.fill == 1
    assert config.learning.batch_size == 16


def test_the_last_set_counts() -> None:
    config = load_config(None, ["run.seed=1", "run.seed=2"], {})
    assert config.run.seed == 2


def test_other_variables_are_no_settings() -> None:
    others = {"RTAGENT_TOKEN": "x" * 43, "HOME": "/", "RTAGENTS__X": "1"}
    assert load_config(None, (), others) == load_config(None, (), {})


def test_values_are_toml_or_words() -> None:
    overrides = (
        "env.id=CartPole-v1",
        "env.default_action=[0.5, -1]",
        "env.kwargs={ gravity = 9.81 }",
        "policy.epsilon_start = 1",
        "run.resume=false",
        'service.host="127.0.0.2"',
    )
    config = load_config(None, overrides, {})
    assert config.env.id == "CartPole-v1"
    assert config.env.default_action == [0.5, -1.0]
    assert config.env.kwargs == {"gravity": 9.81}
    assert config.policy.epsilon_start == 1.0
    assert not config.run.resume
    assert config.service.host == "127.0.0.2"


def test_a_key_inside_kwargs() -> None:
    assert load_config(None, ["env.kwargs.gravity=1.5"], {}).env.kwargs == {"gravity": 1.5}
    assert load_config(None, (), {"RTAGENT_ENV__KWARGS__GRAVITY": "2"}).env.kwargs == {"gravity": 2}


@pytest.mark.parametrize(
    ("setting", "named"),
    [
        ("inference.procesess=3", "inference.procesess: unknown key"),
        ("nonsense.key=3", "nonsense: unknown key"),
        ("inference.processes", "--set inference.processes: expected SECTION.KEY=VALUE"),
        ("processes=3", "--set processes=3: expected SECTION.KEY=VALUE"),
        ("inference.processes.more=3", "inference.processes"),
    ],
)
def test_wrong_names(setting: str, named: str) -> None:
    message = _refusal(setting)
    assert named in message
    assert "\n" not in message


def test_a_bad_environment_variable_is_named() -> None:
    with pytest.raises(UserError, match=r"^inference\.processes = 0: "):
        load_config(None, (), {"RTAGENT_INFERENCE__PROCESSES": "0"})


def test_further_problems_are_counted() -> None:
    assert "(and 1 more)" in _refusal("inference.processes=0", "learning.gamma=2")


@pytest.mark.parametrize(
    ("content", "named"),
    [
        (b"[env\n", "is not valid TOML"),
        (b"\xff\xfe", "is not valid TOML"),
        (b"[inference]\nprocesses = 0\n", "inference.processes = 0"),
        (b"inference = 3\n", "inference = 3"),
    ],
)
def test_bad_files(tmp_path: Path, content: bytes, named: str) -> None:
    file = tmp_path / "bad.toml"
    file.write_bytes(content)
    with pytest.raises(UserError) as caught:
        load_config(file, (), {})
    assert named in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_folder_is_no_file(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="Is a directory"):
        load_config(tmp_path, (), {})
