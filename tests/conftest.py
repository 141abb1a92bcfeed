"""Fixtures that most tests share."""

from __future__ import annotations

import gc
import os
import random
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from functools import cache, partial
from importlib import import_module
from pathlib import Path
from typing import Any, TypeVar

import gymnasium
import numpy as np
import pytest
from hypothesis import HealthCheck, settings

from rtagent import Runtime, load_config
from rtagent.memory.arena import private_memory
from rtagent.memory.blueprint import Blueprint, TensorSpec
from rtagent.memory.compiled import compiled
from rtagent.processes import launch
from rtagent.processes.kernel_state import descendants
from rtagent.processes.scheduling import leave_idle
from rtagent.supervisor import assembly
from tests.forked import Forked, forked_children
from tests.installed import require
from tests.refused import one_line

# A shell has what it starts in the background ignore Ctrl-C, and the tests' own children after it.
signal.signal(signal.SIGINT, signal.default_int_handler)
HANDLERS = {each: signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}

# An example that takes a slow or busy machine long is no failure.
settings.register_profile(
    "any machine", settings.default, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("any machine")


PATIENCE_S = 300.0
MOST_SLEEP_S = 0.05
HURRY_S = 1.0 if "PYTEST_XDIST_WORKER" in os.environ else 5.0
"""Beside other tests what is idle gets nothing anyway."""

Structure = TypeVar("Structure", bound=Any)


def pytest_sessionstart(session: pytest.Session) -> None:
    """Workers begin to import the tests at different files: each compiles a part for all."""
    worker = getattr(session.config, "workerinput", None)
    if worker is None:
        return
    root = session.config.rootpath
    files = sorted(file for each in session.config.args for file in Path(each).rglob("test_*.py"))
    first = len(files) * int(worker["workerid"].removeprefix("gw")) // worker["workercount"]
    for file in files[first:] + files[:first]:
        # What cannot be imported is told when it is collected.
        with suppress(Exception, pytest.skip.Exception):
            name = file.resolve().relative_to(root).with_suffix("")
            import_module(".".join(name.parts))


# Thousands of tests are millions of objects, of which none is garbage.
gc.disable()


def pytest_collection_finish() -> None:
    """From here on the garbage collector looks only at what tests make."""
    gc.freeze()
    gc.enable()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The longest tests begin first: at the end they would keep all but one worker waiting."""
    items.sort(key=lambda item: item.path.name != "test_ray.py")


@pytest.fixture(scope="module", autouse=True)
def _what_is_there_is_no_garbage() -> None:
    """The garbage collector looks only at what this module makes, not at what earlier ones left."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup() -> None:
    """Chance, signals and the number of torch's threads are the same whatever ran before a test."""
    # The command line of a benchmark changes what ends a program, and how.
    for number, handler in HANDLERS.items():
        signal.signal(number, handler)
    sys.excepthook = sys.__excepthook__
    random.seed(0)
    np.random.seed(0)
    if "torch" in sys.modules:
        sys.modules["torch"].manual_seed(0)
        sys.modules["torch"].set_num_threads(1)


def make_blueprint(**changes: object) -> Blueprint:
    """Shapes of a small image world with three actions."""
    values: dict[str, object] = {
        "rate_hz": 60.0,
        "frame_shape": (6, 5),
        "frame_dtype": "uint8",
        "frame_stack": 4,
        "observation_space": gymnasium.spaces.Box(0, 255, (4, 6, 5), np.uint8),
        "action_space": gymnasium.spaces.Discrete(3),
        "action_shape": (),
        "action_dtype": "int32",
        "action_meanings": ("NOOP", "LEFT", "RIGHT"),
        "network": "nature 1",
        "tensors": (TensorSpec("weight", (10, 10)),),
        "screen": True,
    }
    return Blueprint(**{**values, **changes})  # type: ignore[arg-type]


def private(kind: type[Structure], *sizes: int) -> Structure:
    """A structure of shared memory in zeroed memory of the test's own."""
    return kind(private_memory(kind.size(*sizes)), *sizes)


@pytest.fixture
def blueprint() -> Blueprint:
    """Shapes of a small image world with three actions."""
    return make_blueprint()


@pytest.fixture(params=["compiled", "numpy"])
def either_way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """What is written in C is tested, and what takes its place where it was not compiled."""
    way: str = request.param
    if way == "numpy":
        monkeypatch.setattr("rtagent.memory.compiled._library", lambda: None)
    else:
        require(compiled("rtagent_gather"), "what is compiled")
    return way


class LastingForkServer(launch.ForkServer):
    """Serves one run after the other: to import torch takes seconds of a core."""

    def stop(self) -> None:
        """A run has ended its children by itself; this ends with the process of the tests."""


SWITCH = Path(tempfile.gettempdir()) / f"rtagent-switch-{os.getpid()}"
"""Has what is in `tests/faulty` fail, where a worker imports it by name."""


@cache
def _lasting_fork_server() -> LastingForkServer:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(Path(__file__).parent / "faulty"))
        patch.setenv("FAULTY_SWITCH", str(SWITCH))
        return LastingForkServer()


@contextmanager
def one_fork_server() -> Iterator[launch.ForkServer]:
    """Inside, what starts a fork server in this process is given the one that all tests share."""
    # It ends with the thread that starts it: not with that of a run.
    server = _lasting_fork_server()
    with pytest.MonkeyPatch.context() as patch:
        for module in (assembly, launch):
            patch.setattr(module, "ForkServer", lambda *preload: server)
        yield server


@pytest.fixture
def shared_fork_server() -> Iterator[launch.ForkServer]:
    """What starts a fork server in this process is given the one that all tests share."""
    with one_fork_server() as server:
        yield server


@contextmanager
def started(
    folder: Path, *settings: str, wait: bool = True, own_fork_server: bool = False
) -> Iterator[Runtime]:
    """A runtime whose state is in a folder, from settings; ready, unless nobody waits for it."""
    config = load_config(
        overrides=[
            f"run.state_dir={folder}", "replay.capacity=20000", "learning.processes=0",
            "run.tensorboard=false", *settings,
        ]
    )
    with nullcontext() if own_fork_server else one_fork_server(), Runtime(config) as runtime:
        if wait:
            runtime.wait_ready(180)
        yield runtime
        # The supervisor survives its own mistakes; the tests must not.
        known = {} if runtime._error else runtime.status()
        assert [e for e in known.get("events", ()) if e["kind"] == "internal_error"] == []


@pytest.fixture
def forked() -> Iterator[Forked]:
    """Children that end with the test."""
    with forked_children() as children:
        yield children


Runtimes = Callable[..., AbstractContextManager[Runtime]]


@pytest.fixture
def run(tmp_path: Path) -> Runtimes:
    """Starts a runtime on a state directory of the test's own, from settings."""
    return partial(started, tmp_path / "state")


@pytest.fixture
def switch() -> Iterator[Path]:
    """The file that has what is in `tests/faulty` fail; not there at first."""
    yield SWITCH
    for each in SWITCH.parent.glob(f"{SWITCH.name}*"):
        each.unlink()


def hurry() -> None:
    """Let what this process has started compete like everybody else.

    At idle priority a learner gets nothing of a core while another test keeps it busy. Of Ray's
    processes, which have no parent, the session is that of the process that has started them.
    """
    family = descendants(os.getpid())
    for pid in [int(name) for name in os.listdir("/proc") if name.isdigit()]:
        with suppress(ProcessLookupError):
            if pid in family or os.getsid(pid) in family:
                leave_idle(pid)


def eventually(condition: Callable[[], object], what: str) -> float:
    """Wait until a condition of real processes holds; seconds that it took.

    It waits long, for a machine may be slow. What must happen in time is measured and compared with
    what the machine allows. The longer it has waited, the more rarely it looks, for a condition can
    cost milliseconds of a core that the processes need.
    """
    start, hurry_s = time.monotonic(), HURRY_S
    while not condition():
        waited = time.monotonic() - start
        if waited > PATIENCE_S:
            raise AssertionError(f"not within {PATIENCE_S} s: {what}")
        if waited > hurry_s:
            hurry()
            hurry_s += HURRY_S
        time.sleep(min(0.01 + 0.05 * waited, MOST_SLEEP_S))
    return time.monotonic() - start


def open_descriptors() -> dict[str, str]:
    """What each descriptor of this process is.

    What other tests left to the garbage collector may be closed at any moment, so a test asks that
    there is nothing new, `open_descriptors().items() <= before.items()`, and does not count.
    """
    found = {}
    for link in Path("/proc/self/fd").iterdir():
        with suppress(OSError):  # The one that lists them.
            found[link.name] = str(link.readlink())
    return found


def role(runtime: Runtime, name: str) -> dict[str, Any]:
    """A process as the status describes it; {} if it is not there."""
    roles = runtime.status().get("roles", [])
    return next((each for each in roles if each["name"] == name), {})


def events(runtime: Runtime, kind: str) -> list[dict[str, Any]]:
    """What has happened of a kind."""
    return [each for each in runtime.status()["events"] if each["kind"] == kind]


def refusal(*overrides: str, **sections: Any) -> str:
    """What is said of settings that are refused: one line."""
    with one_line() as caught:
        load_config(sections, overrides, {})
    return str(caught.value)
