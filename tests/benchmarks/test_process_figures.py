"""What the kernel says about a process."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from benchmarks.process_figures import cpu_s

BUSY = "import time\nwhile time.process_time() < 0.25: pass"


@pytest.mark.process
def test_the_time_of_a_process_that_has_ended_is_that_of_its_parent() -> None:
    """A sum over a browser's processes fell when one of them ended, or was a traceback."""
    before = cpu_s(os.getpid())
    with subprocess.Popen([sys.executable, "-c", BUSY]) as process:
        pass
    # The kernel counts in hundredths, and rounds down.
    assert cpu_s(os.getpid()) - before >= 0.2
    assert cpu_s(process.pid) == 0.0
