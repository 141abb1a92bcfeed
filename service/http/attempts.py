"""Logins that fail: counted for each address, told to the daemon, and answered less and less.

What is guessed at has 192 bits and more, so this is not what keeps it secret. It says who tries,
and keeps a program that tries for ever from being heard more than now and then. The right token is
never refused for what others have tried from the same address, which may be a proxy's.
"""

from __future__ import annotations

from rtagent.clock import Clock
from service.http.connections import counted_address
from service.http.seldom import Seldom

BURST = 10
"""So many may fail at once..."""
REFILL_S = 6.0
"""...and then one in so many seconds."""
MOST_ADDRESSES = 1024


class Attempts:
    """Failed logins, counted and told of."""

    def __init__(self, clock: Clock, say: Seldom) -> None:
        self._clock = clock
        self._say = say
        self._buckets: dict[str, tuple[float, float]] = {}
        """By address: how many may still fail, as of when."""

    def failed(self, host: str) -> float:
        """Count a failure of a client's address.

        Returns:
            Seconds that the client should wait before it tries again; 0: it need not.
        """
        self._say(f"a login from {host} has failed: a wrong token or code")
        now, address = self._clock.now(), counted_address(host)
        left, at = self._buckets.pop(address, (BURST, now))
        left = min(BURST, left + (now - at) / REFILL_S)
        # The one that has failed last comes last.
        self._buckets[address] = left - (left >= 1.0), now
        while len(self._buckets) > MOST_ADDRESSES:
            del self._buckets[next(iter(self._buckets))]
        return 0.0 if left >= 1.0 else (1.0 - left) * REFILL_S
