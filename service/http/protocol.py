"""uvicorn's HTTP/1 protocol, with a limit to how finely the body of a request may be split.

A chunk costs the event loop the same whether it holds one byte or many. All chunks that were
received are parsed at once, and those of a refused request are, too. So without the limit some
hundred connections could hold the loop for half a minute, without a token.
"""

from __future__ import annotations

from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

SHORT_PIECE = 512
"""Bytes; what one packet carries is usually longer."""
MOST_SHORT_PIECES = 256


class Requests(h11.Connection):
    """The parser of a connection; refuses a body of too many short pieces."""

    def __init__(self) -> None:
        super().__init__(h11.SERVER)
        self._short_pieces = 0

    def next_event(self) -> Any:
        """As h11; each chunk, and each part of one, is an event."""
        event = super().next_event()
        if isinstance(event, h11.Request):
            self._short_pieces = 0
        elif isinstance(event, h11.Data) and len(event.data) < SHORT_PIECE:
            self._short_pieces += 1
            if self._short_pieces > MOST_SHORT_PIECES:
                raise h11.RemoteProtocolError("the body comes in too many pieces")
        return event


class Protocol(H11Protocol):
    """One connection."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.conn = Requests()

    def send_400_response(self, msg: str) -> None:
        """Refuse the rest of what a client sends; where an answer has begun, there is no other."""
        if self.cycle is not None:
            # The application may still be about to answer the beginning.
            self.cycle.disconnected = True
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            super().send_400_response(msg)
        else:
            self.transport.close()
