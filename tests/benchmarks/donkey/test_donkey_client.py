"""The simulator that the benchmarks of DonkeyCar start."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from benchmarks.donkey.donkey_client import running_simulator

SILENT = "import time; print(flush=True); time.sleep(600)"


@pytest.mark.process
def test_a_simulator_that_is_not_heard_of_ends_with_who_waits_for_it(
    monkeypatch: pytest.MonkeyPatch
) -> None:
    """It stayed, also where a signal came before it had said its port."""
    begun: list[subprocess.Popen[str]] = []
    start = subprocess.Popen

    def silent(command: list[str], **options: Any) -> subprocess.Popen[str]:
        begun.append(start([sys.executable, "-c", SILENT], **options))
        return begun[-1]

    monkeypatch.setattr(subprocess, "Popen", silent)
    with pytest.raises(IndexError), running_simulator():
        pass
    (process,) = begun
    ended = process.poll() is not None
    process.kill()
    assert ended
