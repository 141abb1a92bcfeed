"""The wall clock is set by an hour while the agent acts and learns: nothing happens."""

from __future__ import annotations

import json
import os
import shutil
import struct
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from email.utils import parsedate_to_datetime
from pathlib import Path

import httpx
import pytest
from tensorboard.backend.event_processing.event_file_loader import EventFileLoader

from benchmarks.daemon import RunningDaemon
from benchmarks.recount.raw_ledger import Ledger, Recount
from rtagent.storage import checkpoint as checkpoints
from tests.conftest import eventually
from tests.installed import needs

from .watching import FAST_CARTPOLE, await_checkpoint, await_ticks, events, restarts

MINUTE_S, HOUR_S = 60, 3600
CAPACITY = 20_000
RATE_HZ = 100.0

pytestmark = [pytest.mark.process, needs(shutil.which("gcc"), "a C compiler")]


class WallClock:
    """The wall clock of programs that are started with `environ`."""

    def __init__(self, folder: Path) -> None:
        library, self._offset = folder / "wall_clock.so", folder / "offset"
        source = Path(__file__).with_name("wall_clock.c")
        command = ["gcc", "-shared", "-fPIC", "-O1", "-o", str(library), str(source), "-ldl"]
        subprocess.run(command, check=True)
        self._offset.write_bytes(struct.pack("<q", 0))
        self.environ = {"LD_PRELOAD": str(library), "WALL_CLOCK_OFFSET": str(self._offset)}

    def set_by(self, seconds: int) -> None:
        """Set the clock to the right time plus so much."""
        with open(self._offset, "r+b") as file:
            file.write(struct.pack("<q", seconds))


@contextmanager
def stream(daemon: RunningDaemon) -> Iterator[list[int]]:
    """The tick of every figure that an open event stream has brought."""
    ticks: list[int] = []
    headers = {"authorization": f"Bearer {daemon.token}"}
    client = httpx.Client(base_url=daemon.url, headers=headers, timeout=30, trust_env=False)

    def listen() -> None:
        try:
            with client.stream("GET", "/v1/stats/stream?hz=20") as reply:
                ticks.extend(
                    json.loads(line[6:])["clock"]["ticks"]
                    for line in reply.iter_lines() if line.startswith("data: ")
                )
        except httpx.HTTPError:
            return

    thread = threading.Thread(target=listen, daemon=True)
    thread.start()
    try:
        yield ticks
    finally:
        client.close()


def clock_of(daemon: RunningDaemon) -> float:
    """The service's wall clock, seconds since 1970."""
    reply = httpx.get(f"{daemon.url}/livez", trust_env=False)
    return parsedate_to_datetime(reply.headers["date"]).timestamp()


def test_a_clock_that_is_set_has_no_effect(tmp_path: Path) -> None:
    wall_clock = WallClock(tmp_path)
    with RunningDaemon(*FAST_CARTPOLE, environ=wall_clock.environ) as daemon:
        folder = daemon.state_dir / "checkpoints"
        recount = Recount(Ledger(daemon.process.pid, CAPACITY), RATE_HZ)
        with stream(daemon) as streamed:
            await_checkpoint(daemon.state_dir)
            right = clock_of(daemon)
            for by in (HOUR_S, -HOUR_S):
                wall_clock.set_by(by)
                # The kernel stamps files: what was saved by the right clock is moved instead.
                for path in folder.glob("*.safetensors"):
                    # An older one may be removed meanwhile.
                    with suppress(FileNotFoundError):
                        saved = path.stat().st_mtime
                        os.utime(path, (saved, saved - by))
                eventually(
                    lambda by=by: abs(clock_of(daemon) - right - by) < HOUR_S / 2, "it is set"
                )
                check_it_goes_on(daemon, streamed)
        recount.follow()
        clock = daemon.stats()["clock"]
        # A busy machine costs seconds; the clock was set by an hour.
        assert recount.missed / RATE_HZ < MINUTE_S
        assert clock["drift_ms"] < 1e3 * MINUTE_S
        assert clock["uptime_s"] < HOUR_S / 2
        assert clock["ticks"] == pytest.approx(clock["uptime_s"] * RATE_HZ, abs=MINUTE_S * RATE_HZ)
        assert restarts(daemon) == 0
        told = daemon.get("/v1/events?limit=1000")["events"]
        assert [each["at"] for each in told] == sorted((each["at"] for each in told), reverse=True)
        assert not events(daemon, "checkpoint_failed")
        check_the_curves_are_in_order(daemon.state_dir)


def check_it_goes_on(daemon: RunningDaemon, streamed: list[int]) -> None:
    before, seen = daemon.stats(), len(streamed)
    # It would not be found if the newest checkpoint were chosen by the time of its file.
    await_checkpoint(daemon.state_dir, after=before["learning"]["updates"])
    await_ticks(daemon, 100)
    after = daemon.stats()
    assert after["learning"]["updates"] > before["learning"]["updates"]
    assert after["episodes"]["count"] > before["episodes"]["count"]
    eventually(lambda: len(streamed) > seen + 10, "the stream goes on")
    assert streamed == sorted(streamed)
    updates = [each["updates"] for each in checkpoints.listing(daemon.state_dir / "checkpoints")]
    assert updates == sorted(updates, reverse=True)


def check_the_curves_are_in_order(state_dir: Path) -> None:
    (path,) = (state_dir / "runs").glob("*/tensorboard/*")

    def times() -> list[float]:
        return [event.wall_time for event in EventFileLoader(str(path)).Load()]

    # They are written every few seconds: at least once since the clock was set back.
    eventually(lambda: len(times()) > 3, "the curves are written")
    assert max(times()) - min(times()) < HOUR_S / 2
