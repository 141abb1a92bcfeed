"""What every child of the fork server does first."""

from __future__ import annotations

import subprocess
import sys

import pytest

FORK = """
import gc, os, sys
import rtagent.processes.preload
from rtagent.processes.worker import start_life
child = os.fork()
if child == 0:
    start_life("test")
    os._exit(0 if gc.get_freeze_count() > 10_000 else 1)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


@pytest.mark.process
def test_the_collector_leaves_alone_what_all_children_share() -> None:
    done = subprocess.run(
        [sys.executable, "-c", FORK], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
