"""The command line as a whole: choosing a command, and failing well."""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from errno import EAGAIN, EMFILE, ENOMEM
from pathlib import Path
from types import SimpleNamespace

import pytest

from rtagent import __version__, cli
from rtagent.cli import EXIT_BROKEN_PIPE
from rtagent.cli.output import print_json
from rtagent.errors import LIMITS, UserError
from tests.cli.conftest import Run, rtagent

PRELOAD = "rtagent.processes.preload"


def _command(monkeypatch: pytest.MonkeyPatch, failure: BaseException) -> None:
    """Replace `rtagent rom` by a command that fails."""

    def run(args: argparse.Namespace) -> int:
        raise failure

    module = SimpleNamespace(add_arguments=lambda parser: None, run=run)
    monkeypatch.setitem(sys.modules, "rtagent.cli.rom", module)  # type: ignore[arg-type]


def test_version(run: Run) -> None:
    assert run("--version").out == f"rtagent {__version__}\n"


def test_help_names_every_command(run: Run) -> None:
    shown = run("--help")
    assert shown.code == 0
    assert set(re.findall(r"^    ([a-z-]+)\s", shown.out, re.MULTILINE)) == set(cli.COMMANDS)


@pytest.mark.parametrize("name", sorted(cli.COMMANDS))
def test_every_command_has_help(run: Run, name: str) -> None:
    shown = run(name, "--help")
    assert shown.code == 0
    assert shown.out.startswith(f"usage: rtagent {name}")


@pytest.mark.process
@pytest.mark.parametrize(("mode", "said"), [
    (0o755, "every observation is in its space"), (0o777, "No module named 'own_world'"),
])
def test_modules_of_the_working_directory_are_found_if_nobody_else_can_write_there(
    tmp_path: Path, mode: int, said: str
) -> None:
    """Also by the process in which `check-env` tries the environment out."""
    (tmp_path / "own_world.py").write_text("from gymnasium.envs.classic_control import *\n")
    (tmp_path / "gymnasium.py").write_text("raise SystemExit('not the one that is installed')\n")
    tmp_path.chmod(mode)
    command = Path(sys.executable).with_name("rtagent")
    found = subprocess.run(
        [command, "check-env", "own_world:CartPoleEnv"], cwd=tmp_path, capture_output=True,
        text=True, timeout=300,
    )
    assert said in found.stdout, found.stderr


def test_a_user_error_is_one_line_and_code_2(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    _command(monkeypatch, UserError("the moon is down:\n  wait for it"))
    assert run("rom") == (2, "", "rtagent: the moon is down: wait for it\n")


@pytest.mark.parametrize(("failure", "said"), [
    (RuntimeError("can't start new thread"), "can't start new thread"),
    (OSError(EAGAIN, os.strerror(EAGAIN), "of the experiment"), os.strerror(EAGAIN)),
    (OSError(EMFILE, os.strerror(EMFILE)), os.strerror(EMFILE)),
    # What a mapping raises that `ulimit -v` has no room for.
    (OSError(ENOMEM, os.strerror(ENOMEM)), os.strerror(ENOMEM)),
])
def test_what_the_system_is_short_of_is_one_line(
    run: Run, monkeypatch: pytest.MonkeyPatch, failure: Exception, said: str
) -> None:
    _command(monkeypatch, failure)
    assert run("rom") == (2, "", f"rtagent: {said}: {LIMITS}\n")


def test_ctrl_c_is_quiet(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    _command(monkeypatch, KeyboardInterrupt())
    assert run("rom") == (130, "", "")


def test_a_defect_keeps_its_traceback(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    module = SimpleNamespace(add_arguments=lambda parser: None, run=len)
    monkeypatch.setitem(sys.modules, "rtagent.cli.rom", module)  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        run("rom")


@pytest.mark.parametrize("failure", [
    ZeroDivisionError("no\nlines"), RuntimeError("no lines"), OSError("no lines"),
])
def test_what_code_of_the_user_raises_is_one_line_with_its_place(
    run: Run, monkeypatch: pytest.MonkeyPatch, failure: Exception
) -> None:
    _command(monkeypatch, failure)
    code, out, told = run("rom")
    assert (code, out) == (2, "")
    assert told.startswith(f"rtagent: {type(failure).__name__}: no lines ({__file__}:")
    assert told.count("\n") == 1


@pytest.mark.parametrize("name", ["serve", "plan", "doctor"])
def test_other_systems_are_refused_first(
    run: Run, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    said = "rtagent: rtagent needs Linux (memfd, futex, SCHED_FIFO): this is darwin\n"
    assert run(name) == (2, "", said)


@pytest.mark.parametrize("name", ["serve", "check-env", "policy-server"])
def test_a_working_directory_that_was_removed_is_one_line(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """MKL ended every process that loaded torch, or there was a traceback."""
    monkeypatch.chdir(tmp_path)
    tmp_path.rmdir()
    code, out, told = run(name, "CartPole-v1")
    assert (code, out, told.count("\n")) == (2, "", 1)
    assert told.startswith("rtagent: the working directory has been removed, and torch")


def test_other_systems_may_simulate(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    assert run("simulate", "--seconds", "2").code == 0


@pytest.mark.parametrize("command", ["config schema --json", "simulate --seconds 1"])
def test_a_closed_pipe_is_quiet(command: str) -> None:
    """A document and a table; 1 is the code of what a command has found out."""
    reader, writer = os.pipe()
    os.close(reader)
    done = rtagent(*command.split(), stdout=writer)
    os.close(writer)
    assert (done.returncode, done.stderr) == (EXIT_BROKEN_PIPE, "")


def test_what_the_terminal_cannot_show_is_escaped() -> None:
    ascii_only = {**os.environ, "PYTHONIOENCODING": "ascii"}
    done = rtagent("config", "show", "--set", "run.state_dir=/tmp/😀", env=ascii_only)
    assert 'state_dir = "/tmp/\\U0001f600"' in done.stdout, done.stderr


@pytest.mark.parametrize("command", ["config show", "config schema --json"])
def test_output_that_cannot_be_written_is_one_line(command: str) -> None:
    """A short one is written at the end, a long one at once."""
    with open("/dev/full", "w") as full:
        done = rtagent(*command.split(), stdout=full)
    assert done.stderr == "rtagent: cannot write: No space left on device\n"
    assert done.returncode == 2


def full_disk() -> int:
    return os.open("/dev/full", os.O_WRONLY)


def pipe_that_nobody_reads() -> int:
    reader, writer = os.pipe()
    os.close(reader)
    return writer


def terminal_that_is_gone() -> int:
    ours, theirs = os.openpty()
    os.close(ours)
    return theirs


@pytest.mark.parametrize("stderr", [full_disk, pipe_that_nobody_reads, terminal_that_is_gone])
@pytest.mark.parametrize(("program", "code", "said"), [
    ("from rtagent.cli.output import stderr; stderr().print('progress'); print('went on')", 0,
     "went on\n"),
    ("import sys; from rtagent.cli import main; sys.exit(main(['statsu']))", 2, ""),
], ids=["progress", "an error"])
def test_a_stderr_that_takes_nothing_ends_no_command(
    program: str, code: int, said: str, stderr: Callable[[], int]
) -> None:
    """`train` ended with code 1, and without its results."""
    nowhere = stderr()
    done = subprocess.run(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=nowhere, text=True,
        check=False,
    )
    os.close(nowhere)
    assert (done.returncode, done.stdout) == (code, said)


def test_no_room_for_temporary_files_is_one_line() -> None:
    done = subprocess.run(
        ["prlimit", "--fsize=0:", sys.executable, "-m", "rtagent", "serve"],
        capture_output=True, text=True, check=False,
    )
    assert done.returncode == 2
    assert "temporary directory" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_unknown_numbers_are_not_printed_as_nan(capsys: pytest.CaptureFixture[str]) -> None:
    print_json({"value": float("nan"), "values": [1, (-float("inf"),), {"a": 0.5}]})
    assert json.loads(capsys.readouterr().out) == {
        "value": None, "values": [1, [None], {"a": 0.5}],
    }


@pytest.mark.parametrize(("module", "heavy"), [
    ("rtagent.cli", ("torch", "numpy", "fastapi", "httpx", "rich")),
    ("rtagent.cli.status", ("torch", "numpy", "fastapi")),
    ("rtagent.cli.plan", ("torch", "fastapi", "gymnasium")),
    ("rtagent.inference.process", ("msgpack", "websockets")),
    # These import the supervisor.
    ("rtagent.runtime", ("torch", "fastapi", "gymnasium", PRELOAD)),
    ("rtagent.cli.serve", ("torch", "fastapi", "gymnasium", PRELOAD)),
])
def test_modules_stay_light(module: str, heavy: tuple[str, ...]) -> None:
    code = f"import sys, {module}; print(*(name for name in {heavy!r} if name in sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []


def test_the_readme_says_which_commands_take_no_json(run: Run) -> None:
    without = {name for name in cli.COMMANDS if "--json" not in run(name, "--help").out}
    readme = (Path(__file__).parents[2] / "README.md").read_text()
    said = re.search(r"all but (.*?) take\s+`--json`", readme.replace("\n", " "))
    assert set(re.findall(r"`([a-z-]+)`", said[1])) == without - {"rom"}, "rom's own commands do"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("evaluate", "x" * 300), "x: File name too long"),
        (("evaluate", "~nobody-of-this-name/runs"), "no such home directory; set HOME, or name"),
        (("status", "--state-dir", "~nobody-of-this-name/runs"), "no such home directory; set"),
        (("config", "show", "--set", "run.state_dir=~nobody-of-this-name"), ""),
    ],
)
def test_what_a_path_cannot_be_is_one_line(
    run: Run, words: tuple[str, ...], said: str
) -> None:
    done = run(*words)
    assert said in done.err
    assert done.code == (2 if said else 0)
    assert len(done.err.splitlines()) == (1 if said else 0)


@pytest.mark.parametrize(("call", "attribute"), [
    ("config show --config=~/a", "config"), ("simulate --config=~/a", "config"),
    ("plan --picture=~/a", "picture"), ("rom list --state-dir=~/a", "state_dir"),
    ("evaluate ~/a", "checkpoint"), ("experiment --out=~/a", "out"),
])
def test_the_home_directory_is_found_where_the_shell_does_not_look_for_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, call: str, attribute: str
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    command, *words = call.split()
    assert getattr(cli.command_parser(command).parse_args(words), attribute) == tmp_path / "a"
