"""Results that many requests share, by age and by version."""

from __future__ import annotations

import asyncio
import itertools
import threading

from rtagent.clock import VirtualClock
from service.http.fresh import Fresh, PerVersion


def test_a_result_is_handed_out_until_it_is_too_old() -> None:
    clock, made = VirtualClock(), itertools.count()

    async def ask() -> list[int]:
        results, found = Fresh(lambda: next(made), 1.0, clock), []
        for wait_s in (0.0, 0.9, 0.1, 0.9, 0.1):
            clock.advance(wait_s)
            found.append(await results.get())
        return found

    assert asyncio.run(ask()) == [0, 0, 1, 1, 2]


def test_a_result_is_made_once_for_each_version() -> None:
    version, made = [1], []

    def produce() -> int:
        made.append(version[0])
        return version[0]

    async def ask() -> list[int]:
        results = PerVersion(lambda: version[0], produce)
        first = [await results.get() for _ in range(3)]
        version[0] = 2
        return [*first, *[await results.get() for _ in range(3)]]

    assert asyncio.run(ask()) == [1, 1, 1, 2, 2, 2]
    assert made == [1, 2]


def test_who_asks_after_a_change_never_gets_the_result_before_it() -> None:
    version, held = [1], threading.Event()

    def produce() -> int:
        found = version[0]
        if found == 1:
            held.wait(30.0)
        return found

    async def ask() -> tuple[int, int, int]:
        results = PerVersion(lambda: version[0], produce)
        slow = asyncio.create_task(results.get())
        await asyncio.sleep(0)
        while version[0] == 1:
            await asyncio.sleep(0.01)
            version[0] = 2
        quick = await results.get()
        held.set()
        # The slow result replaces the newer one, but under its own version.
        return await slow, quick, await results.get()

    _, quick, after = asyncio.run(ask())
    assert (quick, after) == (2, 2)
