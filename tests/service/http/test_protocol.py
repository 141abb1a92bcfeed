"""Bodies that are split finely, or wrongly, in the running service."""

from __future__ import annotations

from typing import Any

import pytest

from service.http.protocol import MOST_SHORT_PIECES
from tests.forked import eventually
from tests.service.conftest import RunningService, closed

CHUNK, END = b"1\r\n7\r\n", b"0\r\n\r\n"
CHUNKED = "Transfer-Encoding: chunked"


@pytest.mark.parametrize("wrong", [CHUNK * (MOST_SHORT_PIECES + 1), CHUNK + b"zz\r\n"])
def test_a_wrong_body_ends_the_connection_before_and_after_the_answer(
    running: RunningService, wrong: bytes, caplog: Any
) -> None:
    with running.connect() as at_once, running.connect() as late:
        at_once.sendall(running.request("GET /v1/status", CHUNKED) + wrong)
        assert b" 400 " in at_once.recv(4096).splitlines()[0]
        late.sendall(running.request("GET /v1/status", CHUNKED))
        assert b" 401 " in late.recv(4096).splitlines()[0]
        late.sendall(wrong)
        for sock in (at_once, late):
            assert eventually(lambda sock=sock: closed(sock))
    # Anybody can cause this, so nothing may be logged.
    assert caplog.records == []


def test_each_request_may_have_a_body_of_short_pieces(running: RunningService) -> None:
    with running.connect() as sock:
        for _ in range(2):
            sock.sendall(running.request("GET /livez", CHUNKED) + CHUNK * MOST_SHORT_PIECES + END)
            answer = b""
            while not answer.endswith(b"}"):
                answer += sock.recv(4096)
            assert answer.startswith(b"HTTP/1.1 200")
