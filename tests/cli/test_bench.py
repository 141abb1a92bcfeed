"""`rtagent bench`."""

from __future__ import annotations

import signal
import subprocess
from pathlib import Path

import pytest

from rtagent.cli import bench, bench_ratchet, main
from rtagent.cli.bench_ratchet import Record
from rtagent.processes.interrupts import EXIT_INTERRUPTED
from tests.cli.conftest import Refused, Run

ECHO = '''"""Says what it was told.

And more.
"""
import os
import sys

if __name__ == "__main__":
    print([name for name in os.environ if name.startswith("RTAGENT_POLICY")])
    print(sys.argv[1:], flush=True)
    sys.exit(3)
'''


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A checkout with one benchmark and one helper module."""
    folder = tmp_path / "benchmarks" / "subject"
    folder.mkdir(parents=True)
    (folder / "echo.py").write_text(ECHO)
    (folder / "helper.py").write_text('"""Shared by the benchmarks."""\n')
    monkeypatch.setattr(bench, "CHECKOUT", tmp_path)
    return tmp_path


@pytest.fixture
def child(monkeypatch: pytest.MonkeyPatch) -> None:
    """A benchmark runs in a child and does not take the place of the tests."""
    def become(path: str, command: list[str], environ: dict[str, str]) -> None:
        raise SystemExit(subprocess.run(command, executable=path, env=environ).returncode)

    monkeypatch.setattr("os.execve", become)


@pytest.mark.usefixtures("checkout")
def test_lists_the_scripts(run: Run) -> None:
    listed = run("bench")
    assert listed.code == 0
    assert "Says what it was told." in listed.out
    assert "helper" not in listed.out
    assert run("bench", "--json").document() == [
        {"name": "echo", "summary": "Says what it was told."}
    ]


@pytest.mark.process
@pytest.mark.usefixtures("checkout", "child")
@pytest.mark.parametrize(("arguments", "passed"), [
    (("echo", "--json"), "['--json']"),
    (("--json", "echo"), "['--json']"),
    (("echo", "--ticks", "3"), "['--ticks', '3']"),
])
def test_becomes_the_benchmark(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str],
    arguments: tuple[str, ...], passed: str,
) -> None:
    # A benchmark of the default configuration measures that, whatever the shell has set.
    monkeypatch.setenv("RTAGENT_POLICY__WIDTH", "8")
    with pytest.raises(SystemExit) as ended:
        main(["bench", *arguments])
    assert ended.value.code == 3
    assert capfd.readouterr().out.splitlines()[-2:] == ["[]", passed]


INTERRUPTED = """import signal

signal.raise_signal(signal.SIGINT)
if __name__ == "__main__":
    print("not reached")
"""


@pytest.mark.process
@pytest.mark.usefixtures("child")
def test_ctrl_c_while_a_benchmark_imports_leaves_no_traceback(
    checkout: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (checkout / "benchmarks" / "subject" / "interrupted.py").write_text(INTERRUPTED)
    with pytest.raises(SystemExit) as ended:
        main(["bench", "interrupted"])
    assert ended.value.code == EXIT_INTERRUPTED
    assert capfd.readouterr() == ("", "")


@pytest.mark.process
def test_a_benchmark_that_prints_no_json_has_no_figures(refused: Refused, checkout: Path) -> None:
    bench_ratchet.write(checkout / bench.RATCHET, [Record("a", "echo", (), ("a",), "more", 0.0)])
    assert "echo ended with 3 and no JSON" in refused("bench", "--check")


SIGNALLED = '''"""Signals the command that runs it, and ends when it is signalled itself."""
import os, signal, sys, time

def end(*_):
    print("ended in good order", file=sys.stderr, flush=True)
    sys.exit(130)

if __name__ == "__main__":
    signal.alarm(30)
    signal.signal(signal.SIGTERM, end)
    os.kill(os.getppid(), signal.SIGTERM)
    # A pause could begin just after the signal.
    while True:
        time.sleep(0.1)
'''


@pytest.mark.process
def test_a_signal_ends_the_benchmark_that_is_checked(
    checkout: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (checkout / "benchmarks" / "subject" / "signalled.py").write_text(SIGNALLED)
    records = [Record("a", "signalled", (), ("a",), "more", 0.0)]
    bench_ratchet.write(checkout / bench.RATCHET, records)
    # What is not handled must not end the tests.
    before = signal.signal(signal.SIGTERM, lambda *_: None)
    try:
        assert main(["bench", "--check"]) == EXIT_INTERRUPTED
    finally:
        signal.signal(signal.SIGTERM, before)
    assert capfd.readouterr().err == "ended in good order\n"


def test_without_a_checkout(
    refused: Refused, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(bench, "CHECKOUT", tmp_path)
    assert "source checkout" in refused("bench")
