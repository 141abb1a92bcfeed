"""What a process holds."""

from __future__ import annotations

import ctypes
import gc
import os
import subprocess

import pytest

from rtagent.clock import VirtualClock
from rtagent.testing.leftovers import SETTLE_S, held, leftovers
from tests.forked import Forked

PR_SET_NAME = 15


@pytest.mark.process
def test_what_is_held_beyond_before_is_counted_and_waited_for(forked: Forked) -> None:
    """In a child: this process may still end what the test before has started."""
    assert forked.run(count_and_wait) == 0


def count_and_wait() -> None:
    # Its name may be no text.
    ctypes.CDLL(None).prctl(PR_SET_NAME, b"\xc3) T", 0, 0, 0)
    gc.collect()
    before, clock = held(), VirtualClock()
    assert leftovers(clock, before)["processes"] == 0
    assert clock.now() == 0.0
    pipe = os.pipe()
    with subprocess.Popen(["bash", "-c", "sleep 60 & wait"], start_new_session=True) as shell:
        while held()["processes"] < before["processes"] + 2:
            pass
        left = leftovers(clock, before)
        assert (left["processes"], left["descriptors"]) == (2, 2)
        assert clock.now() == pytest.approx(SETTLE_S)
        # What is allowed is not waited for.
        began = clock.now()
        assert leftovers(clock, before, {"processes": 2, "descriptors": 2})["processes"] == 2
        assert clock.now() == began
        os.killpg(shell.pid, 9)
    for end in pipe:
        os.close(end)
    assert leftovers(clock, before, {"processes": 0, "descriptors": 0})["descriptors"] == 0
