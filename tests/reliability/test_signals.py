"""Signals of a terminal or `timeout` to a whole group: the supervisor alone ends the run."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import httpx
import pytest

from benchmarks.daemon import RunningDaemon, options
from benchmarks.process_figures import gone
from rtagent.processes.kernel_state import descendants
from tests.conftest import eventually

from .conftest import updates
from .watching import LEADING_A_GROUP, check_group_ends_in_order

pytestmark = pytest.mark.process

SETTINGS = (
    "env.id=CartPole-v1", "env.rate_hz=100", "replay.capacity=20000", "inference.processes=1",
    "learning.learning_starts=100", "learning.updates_per_tick=0.25", "run.checkpoint_every_s=3600",
)


@pytest.mark.alone  # A learner runs when nobody else wants the core.
def test_sigterm_to_the_whole_group_is_an_orderly_end(tmp_path: Path) -> None:
    """So is SIGHUP: `test_supervisor_killed.py`."""
    with RunningDaemon(*SETTINGS, state_dir=tmp_path / "state", under=LEADING_A_GROUP) as daemon:
        eventually(lambda: updates(daemon) > 0, "it learns")
        check_group_ends_in_order(daemon, signal.SIGTERM)


def test_a_signal_to_a_child_ends_nothing_else(tmp_path: Path) -> None:
    ticks: list[int] = []

    def goes_on() -> bool:
        # The service has got the signal, too, and may be away.
        with suppress(httpx.TransportError):
            ticks.append(daemon.stats()["clock"]["ticks"])
        return bool(ticks) and ticks[-1] > ticks[0] + 150

    with RunningDaemon(*SETTINGS, state_dir=tmp_path / "state") as daemon:
        for number in (signal.SIGTERM, signal.SIGHUP):
            for each in descendants(daemon.process.pid):
                with suppress(ProcessLookupError):
                    os.kill(each, number)
            ticks.clear()
            eventually(goes_on, "it goes on")
            assert daemon.process.poll() is None


def importing(library: str) -> Callable[[int], bool]:
    """Whether a process of a family has mapped a library."""

    def mapped(pid: int) -> bool:
        for each in (pid, *descendants(pid)):
            with suppress(OSError):
                if library in Path(f"/proc/{each}/maps").read_text():
                    return True
        return False

    return mapped


def family_of(size: int) -> Callable[[int], bool]:
    """Whether a process has so many descendants."""
    return lambda pid: len(descendants(pid)) >= size


MOMENTS = {
    "imports": importing("pydantic_core"),
    "the fork server begins": family_of(1),
    "the fork server imports": importing("libtorch_cpu"),
    "the probe": family_of(2),
    "the workers": family_of(4),
}


@contextmanager
def started(*command: str) -> Iterator[tuple[subprocess.Popen[bytes], Callable[[], str]]]:
    """A command in a session of its own, and what it has printed to stderr."""
    with tempfile.TemporaryFile() as said:
        process = subprocess.Popen(
            [sys.executable, "-m", "rtagent", *command], stdout=subprocess.DEVNULL, stderr=said,
            start_new_session=True,
        )
        try:
            yield process, lambda: os.pread(said.fileno(), 100_000, 0).decode()
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


@pytest.mark.parametrize("command", ["serve", "train"])
@pytest.mark.parametrize("moment", MOMENTS)
def test_ctrl_c_at_any_moment_of_the_start_says_nothing(
    tmp_path: Path, command: str, moment: str
) -> None:
    further = {"serve": ("--quiet", "--port", "0"), "train": ("--seconds", "60")}[command]
    folder = ("--state-dir", str(tmp_path / "state"))
    with started(command, *further, *folder, *options(*SETTINGS)) as (process, said):
        eventually(lambda: MOMENTS[moment](process.pid), moment)
        family = descendants(process.pid)
        os.killpg(process.pid, signal.SIGINT)
        code = process.wait(120)
        assert code in (0, 130), said()
        assert "Traceback" not in said()
        assert "Error" not in said()
        eventually(lambda: all(map(gone, family)), "every process is gone")
        assert not (tmp_path / "state" / "daemon.json").exists()
