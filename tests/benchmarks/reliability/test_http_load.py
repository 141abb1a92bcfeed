"""What HTTP load is judged by; `tests/reliability/test_http_load.py` sends some."""

from __future__ import annotations

import asyncio
import math
import socket

from benchmarks.reliability.http_client import _Load
from benchmarks.reliability.http_load import crowd_answers


def test_a_crowd_without_an_answer_waits_for_ever() -> None:
    nobody = _Load(port=1, seconds=0.0).found()
    found = crowd_answers({"answers": {"crowd": [nobody, nobody]}})
    assert found == {"slowest_answer_ms": math.inf, "crowd_per_s": 0.0, "crowd_p99_ms": math.inf}


def test_a_stream_to_which_nobody_listens_has_failed_as_a_request_has() -> None:
    """It ended the client, and no answer of any other connection was told."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    load = _Load(port, seconds=0.0)
    asyncio.run(load.stream("GET / HTTP/1.1\r\n\r\n"))
    assert load.found()["statuses"] == {"failed": 1}
