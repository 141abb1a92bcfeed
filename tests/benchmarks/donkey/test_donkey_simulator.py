"""A simulator that ends while it is listened to."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace

import pytest

from benchmarks.donkey import donkey_simulator
from benchmarks.reliability import fuzz


class Ended:
    """The connection to a simulator that has ended; nobody may listen to it twice."""

    def __init__(self, *_: object) -> None:
        self.heard = False

    def __enter__(self) -> Ended:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def connect(self, address: object) -> None:
        pass

    def sendall(self, data: bytes) -> None:
        pass

    def recv(self, size: int) -> bytes:
        assert not self.heard, "it is listened to for ever"
        self.heard = True
        return b""


@pytest.mark.parametrize(
    "listen", [lambda: donkey_simulator.stream(60.0, 1.0), lambda: fuzz.Witness(1)]
)
def test_it_is_an_error(listen: Callable[[], object], monkeypatch: pytest.MonkeyPatch) -> None:
    """Else who listened for its frames had figures of fewer of them, or listened for ever."""
    simulator = SimpleNamespace(
        ensure_running=lambda: None, address=(None, ""), close=lambda: None
    )
    monkeypatch.setattr(donkey_simulator, "EmbeddedSimulator", lambda *_, **__: simulator)
    for module in (donkey_simulator, fuzz):
        connected = SimpleNamespace(socket=Ended, create_connection=Ended)
        monkeypatch.setattr(module, "socket", connected)
    with pytest.raises(ConnectionError, match="the simulator has"):
        listen()
