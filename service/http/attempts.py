"""Failed logins: counted for each address, reported to the daemon, and answered with a wait.

A token has 256 bits and a code 192, so this limit is not what protects them. It shows who tries,
and keeps a program that tries without end from filling the log. The right token is never refused
because of other attempts from the same address, which may be a proxy's.
"""

from __future__ import annotations

from rtagent.clock import Clock
from service.http.connections import counted_address
from service.http.rate_limited_log import RateLimitedLog

BURST = 10
"""Logins of one address that may fail in quick succession ..."""
REFILL_S = 6.0
"""... and the seconds after which one more may fail."""
MOST_ADDRESSES = 1024


class Attempts:
    """Counts failed logins and reports them."""

    def __init__(self, clock: Clock, log: RateLimitedLog) -> None:
        self._clock = clock
        self._log = log
        self._buckets: dict[str, tuple[float, float]] = {}
        """By address: how many may still fail, as of when."""

    def failed(self, host: str) -> float:
        """Count a failed login from an address.

        Returns:
            Seconds that the client should wait before it tries again, or 0.
        """
        self._log(f"a login from {host} has failed: a wrong token or code")
        now, address = self._clock.now(), counted_address(host)
        left, at = self._buckets.pop(address, (BURST, now))
        left = min(BURST, left + (now - at) / REFILL_S)
        # Inserted anew, so that the address that has not failed for longest comes first.
        self._buckets[address] = left - (left >= 1.0), now
        while len(self._buckets) > MOST_ADDRESSES:
            del self._buckets[next(iter(self._buckets))]
        return 0.0 if left >= 1.0 else (1.0 - left) * REFILL_S
