"""The command line that all benchmarks share."""

from __future__ import annotations

import importlib
import json
import os
import re
import signal
import subprocess
import sys

import pytest

from benchmarks.command import at_least, command_line, from_zero, new_file, new_picture, report
from rtagent.errors import UserError


@pytest.mark.parametrize("wrong", [
    ["--nothing"], ["--seconds", "x"], ["--seconds", "-1"], ["--seconds", "0"],
    ["--seconds", "nan"], ["--seconds", "inf"], ["--rounds", "0"], ["--rounds", "1.5"],
    ["--seed=-1"], ["--seed", "x"], ["--save", "/nowhere/file"], ["--save", "/tmp"],
    ["--frames", "5"], ["--frames", "6.5"], ["--long", "29.9"], ["--long", "nan"], ["--long", "x"],
])
def test_bad_input_is_one_line_that_names_the_command(
    wrong: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["/checkout/benchmarks/acting/chunks.py", *wrong])
    parser = command_line("Chunks.")
    parser.add_argument("--seconds", type=float)
    parser.add_argument("--rounds", type=int, nargs="+")
    parser.add_argument("--seed", type=from_zero)
    parser.add_argument("--save", type=new_file)
    parser.add_argument("--frames", type=at_least(6))
    parser.add_argument("--long", type=at_least(30.0))
    with pytest.raises(SystemExit) as ended:
        parser.parse_args()
    assert ended.value.code == 2
    said = capsys.readouterr().err
    assert said.startswith("rtagent bench chunks: ")
    assert wrong[-1].removeprefix("--seed=") in said
    assert said.endswith(" (see rtagent bench chunks --help)\n")
    assert said.count("\n") == 1


@pytest.mark.parametrize("time", ["first", "second"])
def test_no_test_finds_the_signals_that_one_before_it_has_changed(time: str) -> None:
    """A test of what SIGTERM does to a command passed in vain after a benchmark's command line."""
    before = signal.getsignal(signal.SIGTERM)
    command_line("Chunks.")
    assert signal.getsignal(signal.SIGTERM) is not before, time


@pytest.mark.parametrize(("file", "why"), [
    ("/nowhere/picture.png", "cannot be written"), ("picture.txt", "the name must end in .png"),
])
def test_a_picture_that_could_not_be_drawn_is_refused_at_once(file: str, why: str) -> None:
    parser = command_line("Chunks.")
    parser.add_argument("--picture", type=new_picture)
    with pytest.raises(UserError, match=f"^--picture {file}: {why}"):
        parser.parse_args(["--picture", file])


@pytest.mark.parametrize("command", [
    "acting.clock --seconds 0.001", "acting.peers --seconds 0.01", "acting.chunks --seconds 0.01",
    "acting.registration --frames 11", "acting.virtual_against_wall --seconds 20",
    "cluster.cluster_faults --daemons 1", "donkey.donkey_client --seconds 0.02",
    "donkey.donkey_simulator --seconds 0.01", "learning.learners --seconds 0.001",
    "reliability.http_load --seconds 0.01", "replay.adding --count 9",
    "replay.adding --seconds 0.01", "acting.live_staggering thrity", "recount.recount nonsense",
])
def test_a_run_that_would_measure_nothing_is_refused_before_it_begins(
    command: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Most ended with a traceback, some after minutes: percentiles of nothing."""
    name, *arguments = command.split()
    monkeypatch.setattr("sys.argv", [f"{name}.py", *arguments])
    with pytest.raises(SystemExit) as ended:
        importlib.import_module(f"benchmarks.{name}").main()
    assert ended.value.code == 2
    short, unknown = "{}: {}: must be at least ", "unknown: '{}'; known are (adaptive|steady), "
    said = (short if len(arguments) == 2 else unknown).format(*arguments)
    assert re.search(said, capsys.readouterr().err)


def test_numbers_within_their_bounds_are_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", ["chunks.py"])
    parser = command_line("Chunks.")
    parser.add_argument("--seconds", type=float)
    parser.add_argument("--seed", type=from_zero)
    parser.add_argument("--frames", type=at_least(6))
    given = parser.parse_args(["--seconds", "0.5", "--seed", "0", "--frames", "6"])
    assert (given.seconds, given.seed, given.frames) == (0.5, 0, 6)


def test_a_figure_that_json_cannot_hold_is_null(capsys: pytest.CaptureFixture[str]) -> None:
    report({"latency_ms": [1.0, float("inf")], "passed": True}, True, print)
    assert json.loads(capsys.readouterr().out) == {"latency_ms": [1.0, None], "passed": True}


@pytest.mark.parametrize(("end", "code", "said"), [
    ("raise UserError('no such file')", 2, "rtagent: no such file\n"),
    ("raise KeyboardInterrupt", 130, ""), ("signal.raise_signal(signal.SIGTERM)", 130, ""),
])
def test_a_mistake_and_a_signal_end_without_a_traceback(end: str, code: int, said: str) -> None:
    program = (
        "import signal; from benchmarks.command import command_line; "
        f"from rtagent.errors import UserError; command_line('A.'); {end}"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (code, said)


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_reader_that_has_gone_ends_it_without_a_traceback(unbuffered: str) -> None:
    """As `rtagent bench registration | head -1`."""
    program = "from benchmarks.command import command_line; command_line('A.'); print('figures')"
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(
        [sys.executable, "-c", program], stdout=writer, stderr=subprocess.PIPE, text=True,
        env=os.environ | {"PYTHONUNBUFFERED": unbuffered},
    )
    os.close(writer)
    assert (done.returncode, done.stderr) == (141, "")
