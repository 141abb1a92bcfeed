"""Signals that end a command in good order."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from rtagent.cli.stop_signal import catch_stop_signals
from rtagent.processes.interrupts import EXIT_INTERRUPTED
from tests.trained import leave_checkpoint

HANGING = """
import sys, time
import gymnasium as gym

class Hanging(gym.Wrapper):
    def step(self, action):
        while True:
            print("hangs", file=sys.stderr, flush=True)
            time.sleep(0.05)

gym.register("Hanging-v0", lambda: Hanging(gym.make("CartPole-v1")))
"""


def test_signals_are_noted_however_many_come() -> None:
    with catch_stop_signals() as stop:
        assert not stop.received
        for _ in range(3):
            signal.raise_signal(signal.SIGINT)
        assert stop.received


def test_ctrl_c_after_another_signal_interrupts_where_it_is_asked_for() -> None:
    with catch_stop_signals(second_interrupts=True) as stop:
        for _ in range(2):
            # As both of a terminal that is closed, while results are written.
            signal.raise_signal(signal.SIGTERM)
        assert stop.received
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)


@pytest.mark.process
def test_an_environment_that_hangs_is_left_at_the_second_ctrl_c(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing but SIGKILL ended the command."""
    (tmp_path / "hanging.py").write_text(HANGING)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=":")
    leave_checkpoint(tmp_path / "run", "env.id=hanging:Hanging-v0")
    command = [sys.executable, "-m", "rtagent", "evaluate", str(tmp_path / "run")]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        for _ in range(2):
            # The last of ten lines are written after the signal before.
            assert [process.stderr.readline() for _ in range(10)][-1] == "hangs\n"
            process.send_signal(signal.SIGINT)
        try:
            process.communicate(timeout=60.0)
        finally:
            process.kill()
        assert process.returncode == EXIT_INTERRUPTED
