"""What HTTP load is judged by; `tests/reliability/test_http_load.py` sends some."""

from __future__ import annotations

import math

from benchmarks.reliability.http_client import _Load
from benchmarks.reliability.http_load import crowd_answers


def test_a_crowd_without_an_answer_waits_for_ever() -> None:
    nobody = _Load(port=1, seconds=0.0).found()
    found = crowd_answers({"answers": {"crowd": [nobody, nobody]}})
    assert found == {"slowest_answer_ms": math.inf, "crowd_per_s": 0.0, "crowd_p99_ms": math.inf}
