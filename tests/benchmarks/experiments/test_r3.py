"""The experiment with deadlines: the programs that it runs beside a learner."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

HOGGING = """
import os, time
from benchmarks.experiments.r3 import hogs
from rtagent.processes.kernel_state import children

with hogs(1):
    print(*children(os.getpid()), flush=True)
    time.sleep(600)
"""
LIMIT_MS = 60_000


@pytest.mark.process
def test_a_busy_program_ends_with_a_trial_that_was_killed() -> None:
    root = Path(__file__).parents[3]
    environ = {**os.environ, "PYTHONPATH": str(root)}
    trial = subprocess.Popen([sys.executable, "-c", HOGGING], stdout=subprocess.PIPE, env=environ)
    assert trial.stdout is not None
    with trial, trial.stdout:
        hog = os.pidfd_open(int(trial.stdout.readline()))
        trial.kill()
    ended = select.poll()
    ended.register(hog, select.POLLIN)
    try:
        assert ended.poll(LIMIT_MS), "it keeps a core busy for ever"
    finally:
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(hog, signal.SIGKILL)
        os.close(hog)
