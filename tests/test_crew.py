"""The crew: what its own functions say; its life is tested with the daemon's."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

from rtagent.crew import is_stopped

from .conftest import eventually


@pytest.mark.process
def test_a_stopped_process_is_told_from_one_that_sleeps() -> None:
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    try:
        assert not is_stopped(child.pid)
        os.kill(child.pid, signal.SIGSTOP)
        eventually(lambda: is_stopped(child.pid), 5, "it is stopped")
        os.kill(child.pid, signal.SIGCONT)
        eventually(lambda: not is_stopped(child.pid), 5, "it goes on")
    finally:
        child.kill()
        child.wait()


def test_nobody_is_not_stopped() -> None:
    assert not is_stopped(None)
