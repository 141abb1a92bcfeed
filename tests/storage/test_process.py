"""The processes that save and restore the replay, as the supervisor starts them."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from rtagent.clock import VirtualClock
from rtagent.config import Config
from rtagent.config_sources import parse_config
from rtagent.memory.blueprint import Blueprint
from rtagent.memory.control import DesiredState
from rtagent.memory.world import World, WorldHandles, WorldMemory
from rtagent.processes import launch
from rtagent.processes.pipe import Pipe, open_pipe
from rtagent.storage.process import PROGRESS_EVERY_S, Progress, restore_replay, save_replay
from rtagent.storage.replay_reading import SavedReplay
from rtagent.storage.replay_snapshot import Manifest, ReplayError, find, save
from rtagent.storage.signature import replay_signature, signature
from tests.conftest import hurry, make_blueprint, one_fork_server
from tests.rows import write_row

LIMIT_S = 180.0
CONFIG = parse_config({"replay": {"capacity": 20_500}, "learning": {"processes": 0}})
PICTURES = make_blueprint(frame_shape=(21, 21), cartridge="RED 00")


def test_progress_is_passed_on_now_and_then() -> None:
    said: list[Any] = []
    clock = VirtualClock()
    progress = Progress(SimpleNamespace(send=said.append), clock)  # type: ignore[arg-type]
    for step in range(101):
        progress(step / 100)
        clock.advance(PROGRESS_EVERY_S / 10)
    done = [details["done"] for kind, details in said if kind == "progress"]
    assert done[0] == 0.0
    assert np.diff(done) == pytest.approx(0.1, abs=0.011)


@pytest.fixture(scope="module")
def fork_server() -> Iterator[launch.ForkServer]:
    with one_fork_server() as fork_server:
        yield fork_server


Worlds = Callable[..., tuple[World, WorldHandles]]


@pytest.fixture
def make_world() -> Iterator[Worlds]:
    """Makes worlds whose first ticks are written."""
    memories = []

    def make(
        blueprint: Blueprint = PICTURES, ticks: int = 0, first_tick: int = 0,
        config: Config = CONFIG,
    ) -> tuple[World, WorldHandles]:
        memories.append(WorldMemory(config, blueprint, first_tick))
        world = World(memories[-1].handles)
        world.control.write(DesiredState(config))
        rng = np.random.default_rng(3)
        for tick in range(ticks):
            write_row(
                world.ledger, tick, time_ns=int(rng.integers(2**62)), reward=float(tick),
                episode=tick // 100, action=tick % 3,
            )
            frame = rng.integers(256, size=blueprint.frame_shape, dtype=np.uint8)
            world.frames.publish(tick, frame, tick // 100 * 100)
        return world, memories[-1].handles

    yield make
    for memory in memories:
        memory.close()


def start(fork_server: launch.ForkServer, body: Any, *arguments: Any) -> tuple[Any, Pipe]:
    ours, theirs = open_pipe()
    process = fork_server.spawn(body, *arguments, theirs)
    theirs.close()
    return process, ours


def answers(process: Any, pipe: Pipe) -> list[Any]:
    """Everything that a process says, once it has ended."""
    said = []
    until = time.monotonic() + LIMIT_S
    try:
        while time.monotonic() < until:
            if pipe.poll(0.5):
                said.append(pipe.recv())
            else:
                # It saves at idle priority.
                hurry()
    except EOFError:
        pass
    process.join(LIMIT_S)
    assert process.exitcode == 0
    return said


def saved_replay(folder: Path, blueprint: Blueprint = PICTURES) -> Manifest | None:
    return find(folder, replay_signature(CONFIG, blueprint))


def test_a_replay_of_another_cartridge_is_refused(tmp_path: Path, make_world: Worlds) -> None:
    other = replace(PICTURES, cartridge="BLUE 11")
    world, _ = make_world(ticks=20)
    save(tmp_path, replay_signature(CONFIG, PICTURES), world.frames, world.ledger)
    assert saved_replay(tmp_path).newest == 19
    with pytest.raises(ReplayError, match=r"v0 with RED 00, not .*v0 with BLUE 11"):
        saved_replay(tmp_path, other)
    # Weights may go on with it.
    assert signature(CONFIG, PICTURES) == signature(CONFIG, other)


def test_a_replay_whose_rows_have_no_states_is_refused_by_a_recurrent_policy(
    tmp_path: Path, make_world: Worlds
) -> None:
    """It counted as damaged, and the next save removed it."""
    recurrent = replace(PICTURES, state_size=128)
    for written, other, refusal in (
        (PICTURES, recurrent, r"observation (.+), not \1 and a state of 128 numbers"),
        (recurrent, PICTURES, r"observation (.+) and a state of 128 numbers, not \1;"),
    ):
        folder = tmp_path / str(written.state_size)
        world, _ = make_world(written, ticks=20)
        save(folder, replay_signature(CONFIG, written), world.frames, world.ledger)
        assert saved_replay(folder, written).newest == 19
        with pytest.raises(ReplayError, match=refusal):
            saved_replay(folder, other)
    assert SavedReplay(tmp_path / "128").frame_shape == PICTURES.frame_shape
    # The network says it of weights.
    assert signature(CONFIG, PICTURES) == signature(CONFIG, recurrent)


@pytest.mark.process
def test_there_and_back(tmp_path: Path, make_world: Worlds, fork_server: launch.ForkServer) -> None:
    world, handles = make_world(ticks=5000)
    folder = tmp_path / "replay"
    *_, (kind, details) = answers(*start(fork_server, save_replay, handles, folder))
    assert kind == "saved"
    assert (details["ticks"], details["chunks_written"], details["chunks_kept"]) == (5000, 2, 0)
    assert details["bytes"] > 5000 * 21 * 21 / 2
    assert details["seconds"] > 0
    manifest = saved_replay(folder)
    assert (manifest.oldest, manifest.newest) == (0, 4999)

    later, handles = make_world(first_tick=5000)
    assert later.ledger.newest == 4999
    assert later.ledger.row(4999) is None
    first, *_, (kind, details) = answers(*start(fork_server, restore_replay, handles, folder))
    assert first[0] == "progress"
    assert kind == "restored"
    assert {name: details[name] for name in ("ticks", "oldest", "newest")} == {
        "ticks": 5000, "oldest": 0, "newest": 4999
    }
    assert not {"problem", "priorities"} & details.keys()
    assert later.ledger.read(0, 5000).tobytes() == world.ledger.read(0, 5000).tobytes()
    assert (later.frames.frames[:5000] == world.frames.frames[:5000]).all()
    assert (later.frames.stamps[:5000] == np.arange(5000)).all()


@pytest.mark.process
def test_priorities_that_begin_anew_are_said_to(
    tmp_path: Path, make_world: Worlds, fork_server: launch.ForkServer
) -> None:
    """With another exponent nothing said that they were gone."""

    def prioritized(exponent: float) -> Config:
        values = CONFIG.model_dump()
        values["learning"] |= {"prioritized": True, "priority_exponent": exponent}
        return parse_config(values)

    world, handles = make_world(make_blueprint(), ticks=10, config=prioritized(0.6))
    world.priorities.restore(4, np.array([0.5, 2.0]))
    answers(*start(fork_server, save_replay, handles, tmp_path))
    for exponent, said, found in ((0.6, "restored", [0.5, 2.0]), (0.3, "begin anew", [0.0, 0.0])):
        later, handles = make_world(
            make_blueprint(), first_tick=10, config=prioritized(exponent)
        )
        *_, (_, details) = answers(*start(fork_server, restore_replay, handles, tmp_path))
        assert (details["ticks"], details["priorities"]) == (10, said)
        assert later.priorities.values(4, 6).tolist() == found


@pytest.mark.process
def test_priorities_that_are_at_a_clusters_learner_are_not_said_to_be_restored(
    tmp_path: Path, make_world: Worlds, fork_server: launch.ForkServer
) -> None:
    """They begin anew there: zeros were saved, and said to be restored."""
    values = CONFIG.model_dump()
    values["learning"] |= {"prioritized": True, "where": "cluster", "processes": 1}
    values["cluster"] |= {"replay": "learner"}
    config = parse_config(values)
    _, handles = make_world(make_blueprint(), ticks=10, config=config)
    answers(*start(fork_server, save_replay, handles, tmp_path))
    _, handles = make_world(make_blueprint(), first_tick=10, config=config)
    *_, (kind, details) = answers(*start(fork_server, restore_replay, handles, tmp_path))
    assert (kind, details["ticks"]) == ("restored", 10)
    assert "priorities" not in details


def save_and_wait(handles: WorldHandles, folder: Path, pipe: Pipe) -> None:
    """Save, but go on after the first word only when SIGTERM has come."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    say = Progress.__call__

    def say_and_wait(progress: Progress, done: float) -> None:
        Progress.__call__ = say  # type: ignore[method-assign]
        say(progress, done)
        while signal.SIGTERM not in signal.sigpending():
            time.sleep(0.001)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})

    Progress.__call__ = say_and_wait  # type: ignore[method-assign]
    save_replay(handles, folder, pipe)


@pytest.mark.process
def test_termination_ends_a_save_between_pieces(
    tmp_path: Path, make_world: Worlds, fork_server: launch.ForkServer
) -> None:
    _, handles = make_world(make_blueprint(), ticks=10)
    answers(*start(fork_server, save_replay, handles, tmp_path))
    before = {path.name for path in tmp_path.iterdir()}
    _, handles = make_world(ticks=5000)
    process, pipe = start(fork_server, save_and_wait, handles, tmp_path)
    assert pipe.poll(LIMIT_S)
    kind, details = pipe.recv()
    assert kind == "progress"
    assert details["done"] < 0.5
    os.kill(process.pid, signal.SIGTERM)
    *_, (kind, text) = answers(process, pipe)
    assert (kind, "was ended" in text) == ("failed", True)
    assert before <= {path.name for path in tmp_path.iterdir()}
    assert saved_replay(tmp_path, make_blueprint()).newest == 9


@pytest.mark.process
@pytest.mark.parametrize("ends", [False, True])
def test_a_save_does_not_wait_for_other_programs_when_the_run_ends(
    tmp_path: Path, make_world: Worlds, fork_server: launch.ForkServer, ends: bool
) -> None:
    """Nothing acts any more, and whoever stops a daemon waits for minutes at most."""
    world, handles = make_world(make_blueprint(), ticks=10)
    world.control.write(DesiredState(CONFIG, stop=ends))
    process, pipe = start(fork_server, save_and_wait, handles, tmp_path)
    assert pipe.poll(LIMIT_S)
    pipe.recv()
    own = os.sched_getscheduler(0)
    assert os.sched_getscheduler(process.pid) == (own if ends else os.SCHED_IDLE)
    os.kill(process.pid, signal.SIGTERM)
    answers(process, pipe)


@pytest.mark.process
def test_a_corrupt_replay_is_said_to_be_one(
    tmp_path: Path, make_world: Worlds, fork_server: launch.ForkServer
) -> None:
    _, handles = make_world(make_blueprint(), ticks=10)
    answers(*start(fork_server, save_replay, handles, tmp_path))
    (chunk,) = tmp_path.glob("*.chunk")
    chunk.write_bytes(b"")
    later, handles = make_world(make_blueprint(), first_tick=10)
    *_, (kind, details) = answers(*start(fork_server, restore_replay, handles, tmp_path))
    assert (kind, details["ticks"], details["newest"]) == ("restored", 0, 9)
    assert chunk.name in details["problem"]
    assert (later.ledger.newest, later.ledger.oldest) == (9, 10)


@pytest.mark.process
def test_what_cannot_be_done_is_one_line(
    tmp_path: Path, make_world: Worlds, fork_server: launch.ForkServer
) -> None:
    _, handles = make_world(make_blueprint(), ticks=10)
    assert answers(*start(fork_server, restore_replay, handles, tmp_path / "absent")) == [
        ["failed", f"the replay {tmp_path / 'absent'} has changed since it was found"]
    ]
    (tmp_path / "file").touch()
    ((kind, text),) = answers(*start(fork_server, save_replay, handles, tmp_path / "file"))
    assert kind == "failed"
    assert "cannot write the replay" in text
    assert "\n" not in text
