"""Where the configuration comes from, and what is said of what is wrong with it."""

from __future__ import annotations

import re
import sysconfig
from datetime import date
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from gymnasium.envs.classic_control.cartpole import CartPoleEnv

from rtagent.config import Config
from rtagent.config_sources import load_config, plain
from rtagent.env.adapter import open_environment
from rtagent.errors import UserError
from tests.conftest import refusal
from tests.refused import one_line


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


def test_settings_come_as_a_mapping_too() -> None:
    settings = {"env": {"id": "CartPole-v1", "kwargs": {"render_mode": None}}, "run": {"seed": 3}}
    config = load_config(settings, ["env.kwargs.render_mode=rgb_array"], {})
    assert (config.env.id, config.run.seed) == ("CartPole-v1", 3)
    assert config.env.kwargs == {"render_mode": "rgb_array"}
    # The caller's own are left alone.
    assert settings["env"] == {"id": "CartPole-v1", "kwargs": {"render_mode": None}}


def test_a_class_or_function_stands_for_its_name() -> None:
    settings = {"env": {"id": CartPoleEnv}, "policy": {"factory": open_environment}}
    config = load_config(settings, (), {})
    assert config.env.id == "gymnasium.envs.classic_control.cartpole:CartPoleEnv"
    assert config.policy.factory == "rtagent.env.adapter:open_environment"


def test_what_cannot_be_imported_elsewhere_is_refused() -> None:
    def inside() -> None:
        """Nobody else can import it."""

    with pytest.raises(UserError, match=r"policy.factory = .*inside.*module of its own"):
        load_config({"policy": {"factory": inside}}, (), {})


def _evaluated(code: str) -> type:
    """A class as a notebook of its own kind makes it, in a namespace that is no module."""
    namespace: dict[str, type] = {}
    exec(code, namespace)
    return namespace["World"]


@pytest.mark.parametrize("world", [
    _evaluated("class World: pass"), partial(CartPoleEnv, sutton_barto_reward=True),
    CartPoleEnv().reset,
])
def test_what_another_process_would_not_find_by_its_name_is_refused(world: object) -> None:
    with pytest.raises(UserError, match=r"env.id = .*module of its own"):
        load_config({"env": {"id": world}}, (), {})


def test_overrides_are_a_list() -> None:
    with pytest.raises(UserError, match=r"run.seed=1: expected a list of SECTION.KEY=VALUE"):
        load_config(None, "run.seed=1", {})


@pytest.mark.parametrize("name", ["2025-11-25", "12:30:00", "2025-11-25T12:30:00Z"])
def test_the_name_of_a_folder_may_look_like_a_date(name: str) -> None:
    assert load_config(None, [f"run.state_dir={name}"], {}).run.state_dir == Path(name)


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


@pytest.mark.parametrize("more", ["env.rate_hz=50", "[env]"])
def test_a_second_line_is_no_value_of_its_own(more: str) -> None:
    """It was dropped without a word."""
    text = f"3\n{more}"
    assert refusal(f"run.seed={text}").startswith(f"run.seed = {text!r}: ")
    assert load_config(None, ["env.kwargs.x=[1,\n2]"], {}).env.kwargs == {"x": [1, 2]}


@pytest.mark.parametrize("scheme", [
    sysconfig.get_default_scheme(), sysconfig.get_preferred_scheme("user"),
])
def test_an_example_is_found_wherever_pip_has_put_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, scheme: str
) -> None:
    file = tmp_path / scheme / "share" / "rtagent" / "examples" / "own.toml"
    file.parent.mkdir(parents=True)
    file.write_text("run.seed = 7")
    monkeypatch.setattr(sysconfig, "get_path", lambda kind, given: str(tmp_path / given))
    assert load_config("examples/own.toml", (), {}).run.seed == 7
    with pytest.raises(UserError, match=r"^cannot read the configuration examples/none\.toml: "):
        load_config("examples/none.toml", (), {})


def test_a_key_inside_kwargs() -> None:
    assert load_config(None, ["env.kwargs.gravity=1.5"], {}).env.kwargs == {"gravity": 1.5}
    assert load_config(None, (), {"RTAGENT_ENV__KWARGS__GRAVITY": "2"}).env.kwargs == {"gravity": 2}


@pytest.mark.parametrize(("setting", "named"), [
    ("inference.procesess=3", "inference.procesess: unknown key"),
    ("inference.procesess=3", "did you mean inference.processes?"),
    ("inference.gamma=0.9", "did you mean learning.gamma?"),
    ("agent.gama=0.9", "did you mean learning.gamma?"),
    ("inferense.procesess=3", "did you mean inference.processes?"),
    ("learning.unknown=1", "learning.unknown: unknown key; `rtagent config schema`"),
    ("env.rate=30", "did you mean env.rate_hz?"),
    ("nonsense.key=3", "nonsense: unknown key; `rtagent config schema` lists all keys"),
    ("inference.processes", "--set inference.processes: expected SECTION.KEY=VALUE"),
    ("processes=3", "--set processes=3: expected SECTION.KEY=VALUE"),
    ("inference.processes.more=3", "inference.processes"),
    ("env.kwargs.x=" + "[" * 2000, "env.kwargs.x: nested too deeply"),
    ("env.kwargs" + ".x" * 300 + "=1", "the configuration is nested too deeply: 32 levels"),
    ("run.seed=" + "9" * 5000, "run.seed: Exceeds the limit (4300 digits)"),
    ("run.seed=0x" + "f" * 5000, "run.seed: Exceeds the limit (4300 digits)"),
])
def test_wrong_names(setting: str, named: str) -> None:
    assert named in refusal(setting)


@pytest.mark.parametrize(("setting", "expected"), [
    ("policy.factory=networks.build", "expected package.module:callable"),
    ("policy.device=gpu", "expected cpu or cuda:N"),
    ("learning.device=gpu", "expected auto, cpu or cuda:N"),
    ('service.allowed_hosts=["http://hub/"]', "with or without :PORT"),
    ("cluster.name=a b", "expected 1 to 64 letters"),
])
def test_a_form_is_told_in_words(setting: str, expected: str) -> None:
    message = refusal(setting)
    assert expected in message
    assert "^" not in message


@pytest.mark.parametrize(("name", "value"), [
    ("learning.processes", "True"), ("learning.learning_rate", "True"),
    ("inference.processes", "True"), ("env.rate_hz", "True"), ("env.default_action", "True"),
    ("env.default_action", "[1, True]"),
])
def test_true_is_no_number(name: str, value: str) -> None:
    said = f"{name} = {value}: must not be true or false"
    assert refusal(f"{name}={value.lower()}") == said


def test_a_value_of_any_length_is_refused_in_a_line_that_can_be_read() -> None:
    said = refusal(f"env.default_action={[1.5] * 1000}")
    assert said.startswith("env.default_action = [1.5, 1.5, ")
    assert said.endswith(", 1.5, 1.5]: must be a valid string, or must be a valid integer, or List "
                         "should have at most 256 items after validation, not 1000")
    assert len(said) < 1000


@pytest.mark.parametrize(("text", "value"), [("", ""), ('"a\\u0000b"', "a\0b")])
def test_a_name_that_no_file_has_is_refused(text: str, value: str) -> None:
    said = f"run.state_dir = {value!r}: must name a file or a folder"
    assert refusal(f"run.state_dir={text}") == said


@pytest.mark.parametrize("value", [2030, 7.5, date(2030, 1, 2)])
def test_a_name_that_reads_as_a_number_or_a_date_has_to_be_a_text(value: Any) -> None:
    said = f"run.state_dir = {value!r}: must be a text that names a file or a folder, such as "
    assert refusal(run={"state_dir": value}) == f"{said}'./{value}'"
    assert load_config(None, [f"run.state_dir=./{value}"], {}).state_dir == Path(str(value))


def test_a_value_in_the_place_of_a_section() -> None:
    assert refusal(env=3) == "env = 3: expected a section with keys, [env]"


def test_a_bad_environment_variable_is_named() -> None:
    with pytest.raises(UserError, match=r"^inference\.processes = 0: "):
        load_config(None, (), {"RTAGENT_INFERENCE__PROCESSES": "0"})


def test_all_that_a_setting_takes_is_named() -> None:
    said = "inference.processes = 'two': must be a valid integer, or must be 'auto'"
    assert refusal("inference.processes=two") == said


@pytest.mark.parametrize("name", ["learning.paused", "run.resume"])
def test_a_switch_is_true_or_false(name: str) -> None:
    assert refusal(f"{name}=maybe") == f"{name} = 'maybe': must be true or false"


def test_the_service_says_the_same_of_a_switch() -> None:
    """It has a model of its own, and these are the messages of pydantic."""
    for message in ("valid boolean", "valid boolean, unable to interpret input"):
        assert plain(f"Input should be a {message}") == "must be true or false"


def test_further_problems_are_counted() -> None:
    assert "(and 1 more)" in refusal("inference.processes=0", "learning.gamma=2")


@pytest.mark.parametrize(("content", "named"), [
    (b"[env\n", "is not valid TOML"),
    (b"[inference]\nprocesses = 0\n", "inference.processes = 0"),
    (b"#" * 100_000, "100000 bytes, and 65536 are the most"),
])
def test_bad_files(tmp_path: Path, content: bytes, named: str) -> None:
    file = tmp_path / "bad.toml"
    file.write_bytes(content)
    with one_line(re.escape(named)):
        load_config(file, (), {})

