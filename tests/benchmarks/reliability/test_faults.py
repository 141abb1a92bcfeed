"""The random faults that are done to a daemon's processes."""

from __future__ import annotations

import os
import resource
from typing import Any
from unittest.mock import Mock

from benchmarks.reliability.faults import limited

FILES = resource.RLIMIT_NOFILE


def test_a_limit_is_taken_back_to_what_it_was() -> None:
    before = resource.getrlimit(FILES)
    former, seen = (512, before[1]), list[Any]()
    resource.setrlimit(FILES, former)
    try:
        watch = Mock(hold=lambda: seen.append(resource.getrlimit(FILES)))
        limited(FILES, lambda pid: 256)(watch, os.getpid(), "learner")
        seen.append(resource.getrlimit(FILES))
    finally:
        resource.setrlimit(FILES, before)
    assert seen == [(256, before[1]), former]
