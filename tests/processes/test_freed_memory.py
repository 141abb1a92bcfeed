"""Freed memory stays with the process."""

from __future__ import annotations

import subprocess
import sys

import pytest

SCRIPT = """
import os, sys
import numpy as np
from rtagent.memory.usage import private_bytes
from rtagent.processes.freed_memory import keep_freed_memory
if sys.argv[1] == "kept":
    keep_freed_memory()
before = private_bytes([os.getpid()])
np.ones(64 << 20, np.uint8)
print((private_bytes([os.getpid()]) - before) >> 20)
"""


@pytest.mark.parametrize(("how", "least", "most"), [("default", -16, 16), ("kept", 48, 80)])
def test_freed_memory_is_kept(how: str, least: int, most: int) -> None:
    command = [sys.executable, "-c", SCRIPT, how]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert least <= int(done.stdout) <= most
