"""Every command in the documentation runs, or is accepted."""

from __future__ import annotations

import ast
import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from rtagent import Runtime, cli
from rtagent.config import Config
from rtagent.config_sources import all_keys, load_config
from tests.cli.conftest import Outcome, Run
from tests.conftest import eventually
from tests.docs.commands import (
    ROOT,
    blocks,
    check,
    check_benchmark,
    check_rtagent,
    commands,
    experiments,
    measured,
)
from tests.installed import require

ALL = list(dict.fromkeys(commands()))
ASKING = {"status", "set", "events", "login"}
"""Commands that need a daemon."""
QUICK: dict[str, list[str]] = {
    "simulate": [], "config": [], "check-env": ["--seconds", "1"],
}
"""Commands that run here as written, with these further options."""
NOT_QUICK = {"donkey-generated-track-v0", "--env"}
"""Words of commands that need a simulator at an address, or play whole runs."""
DAEMON = [
    "serve", "--quiet", "--port", "0", "--set", "env.id=CartPole-v1",
    "--set", "replay.capacity=20000", "--set", "run.tensorboard=false",
]


@pytest.fixture(autouse=True)
def _in_the_checkout(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("COLUMNS", "100")


@pytest.fixture
def daemon(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A daemon with a new state directory, which all commands use."""
    monkeypatch.setenv("RTAGENT_RUN__STATE_DIR", str(tmp_path))
    process = subprocess.Popen([sys.executable, "-m", "rtagent", *DAEMON])
    try:
        yield tmp_path
    finally:
        process.terminate()
        process.wait(120)


def test_there_are_commands() -> None:
    assert len(ALL) > 60


@pytest.mark.parametrize("words", sorted({each.words for each in ALL}), ids=" ".join)
def test_the_code_takes_it(words: tuple[str, ...]) -> None:
    check(words)


@pytest.mark.parametrize("words", sorted({
    each.words for each in ALL
    if each.words[0] == "rtagent" and each.words[1] in QUICK and not NOT_QUICK & {*each.words}
}), ids=" ".join)
def test_quick_ones_run(run: Run, words: tuple[str, ...]) -> None:
    done = run(*words[1:], *QUICK[words[1]])
    assert done.code == 0, done.err


def in_time(run: Run, arguments: list[str]) -> Outcome:
    """What a command does; a learner that must begin for it takes its time beside other tests."""
    found: list[Outcome] = []

    def answered() -> bool:
        found.append(run(*arguments))
        return "not in force in time" not in found[-1].err

    eventually(answered, f"{arguments} in force")
    return found[-1]


@pytest.mark.process
def test_those_that_need_a_daemon_run_in_their_order(daemon: Path, run: Run) -> None:
    """In one daemon, as in the tutorial."""
    require(shutil.which("curl"), "curl")
    eventually(lambda: "running" in run("status").out, "the daemon runs")
    for command in ALL:
        program, *rest = command.words
        if program == "rtagent" and rest[0] in ASKING:
            arguments = [each for each in rest if each not in ("--state-dir", "/var/lib/rtagent")]
            done = in_time(run, arguments)
            assert done.code == 0, (command, done.err)
        elif program == "curl":
            note = (daemon / "daemon.json").read_text()
            port = re.search(r":(\d+)/", note)
            line = command.line.replace("~/.local/state/rtagent", str(daemon))
            answer = subprocess.run(
                ["bash", "-c", line.replace(":8008", f":{port[1]}") + " -sf"],
                capture_output=True, text=True, check=True,
            ).stdout
            assert '"actions"' in answer


@pytest.mark.parametrize("command", sorted({*measured(), *experiments()}))
def test_figures_name_a_command_that_there_is(command: str) -> None:
    name, *arguments = shlex.split(command)
    if name == "experiment":
        check_rtagent([name, *arguments])
    else:
        check_benchmark(name, arguments)


def test_python_compiles_and_calls_what_there_is() -> None:
    for page, text in blocks("python"):
        for node in ast.walk(ast.parse(text, str(page))):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
                assert node.value.id != "rt" or hasattr(Runtime, node.attr), node.attr


def test_toml_has_keys_that_there_are() -> None:
    sections = {key.partition(".")[0] for key in all_keys()}
    for page, text in blocks("toml"):
        for section, values in tomllib.loads(text).items():
            if section in sections:
                assert {f"{section}.{key}" for key in values} <= set(all_keys()), page


def of_checkpoints(config: Config) -> tuple[object, ...]:
    """What the settings say of the world and the network whose weights a checkpoint holds."""
    env, policy = config.env, config.policy
    network = policy.network.replace("auto", "nature")
    return env.id, env.pending_actions, network, policy.width, policy.factory


def test_another_world_or_network_has_a_state_directory_of_its_own() -> None:
    """In the default one a reader has checkpoints of the built-in game, which would be refused."""
    for command in ALL:
        program, *rest = command.words
        if program == "rtagent" and rest[0] in ("serve", "train"):
            args = cli.command_parser(rest[0]).parse_args(rest[1:])
            config = load_config(args.config, args.overrides, {})
            same = of_checkpoints(config) == of_checkpoints(Config())
            assert same or not config.policy.learns or args.state_dir is not None, command


def test_no_two_commands_write_to_the_same_place() -> None:
    """The second would refuse to overwrite, for a reader who tries one page after the other."""
    written = [
        command.words[command.words.index(option) + 1]
        for command in ALL for option in ("--out", "--save") if option in command.words
    ]
    assert len(written) >= 3
    assert len(set(written)) == len(written)


@pytest.mark.slow
@pytest.mark.process
def test_the_long_ones_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Training, evaluation, export, plans and profiles, in their order, shortened."""
    shorter = {
        "train": ["--seconds", "15"], "evaluate": ["--episodes", "1"], "export": [], "plan": [],
        "profile": [], "simulate": [],
    }
    # The doctor exits with 1 if it finds a problem of this machine.
    subprocess.run([sys.executable, "-m", "rtagent", "doctor"], check=False, timeout=120)
    monkeypatch.setenv("RTAGENT_RUN__STATE_DIR", str(tmp_path / "state"))
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    for command in ALL:
        program, *rest = command.words
        if program == "rtagent" and rest[0] in shorter and "STATE_DIR" not in rest:
            if rest[0] == "train" and "--updates" in rest:
                rest[rest.index("--updates") + 1] = "50"
                more = []
            else:
                more = shorter[rest[0]]
            subprocess.run(
                [sys.executable, "-m", "rtagent", *rest, *more], cwd=tmp_path, check=True,
                env={**os.environ, "PYTHONPATH": str(ROOT)}, timeout=300,
            )
