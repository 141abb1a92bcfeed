"""The sides of `cluster_throughput`: learners, and how transitions come to them.

Each side learns only while one of its blocks is measured; the others wait meanwhile.
"""

from __future__ import annotations

import multiprocessing
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from pkgutil import resolve_name
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch

from benchmarks.acting.registration import NoPipe
from benchmarks.cluster.plain_actors import PLAIN_ROWS, PlainLearner, PlainReplay, begun
from benchmarks.waiting import until
from benchmarks.worlds.pattern_world import PatternWorld, with_network
from rtagent.clock import MonotonicClock
from rtagent.cluster import ray_session
from rtagent.config import Config
from rtagent.config_sources import load_config
from rtagent.learning.replay.batch import Batch, empty_batch
from rtagent.memory.control import DesiredState
from rtagent.memory.process_metrics import LearnerRecord
from rtagent.memory.world import World, WorldHandles
from rtagent.processes.worker import Assignment, WorkerContext

LEARNERS = 8.0
"""Learner actors that fit into the cluster."""
STOP_S = 30.0
POLL_S = 0.002
PAGE = 4096
BESIDE_S = 0.1
TICKS_PER_S = 60


class Block(NamedTuple):
    """What was measured of a side in one block.

    Attributes:
        batches: per second.
        update_s: mean time of their updates.
    """

    batches: float
    update_s: float

    @property
    def busy(self) -> float:
        """Share of the time that the learner spent in updates, not waiting for a batch."""
        return self.batches * self.update_s


class Side(Protocol):
    """A learner that learns when it is told to."""

    def run(self, batch_size: int, settle_s: float, seconds: float) -> Block:
        """Learn for a while, and wait again.

        Args:
            batch_size: transitions of a batch.
            settle_s: seconds of learning that are not measured, at first.
            seconds: measured at least; only whole updates are counted.
        """
        ...

    def close(self) -> None:
        """End its processes."""
        ...


def settings(folder: Path, capacity: int, *more: str) -> Config:
    """The configuration that all sides have in common, with further settings of one side."""
    common = [
        f"run.state_dir={folder}", f"replay.capacity={capacity}", "learning.prioritized=true",
        "learning.processes=1", "run.checkpoint_every_s=1000000", "cluster.weights_every=16",
        "learning.publish_every=16",
    ]
    return load_config(None, [*common, *more], {})


# ---- in the daemon, and through its gateway


class Context(WorkerContext[LearnerRecord]):
    """The context of a learner's process that keeps the priority of the benchmark."""

    def set_idle_priority(self) -> None:
        """Do nothing: with idle priority, other programs would decide the result."""


def work(handles: WorldHandles, entry: str, folder: str) -> None:
    """Body of a learner's or a gateway's process, without a supervisor."""
    torch.set_num_threads(1)
    world = World(handles)
    # Touch every page once, as a process has that has learned for some minutes.
    world.frames.frames.reshape(-1)[::PAGE].sum()
    record = world.metrics.learners[0]
    assignment = Assignment("learner", 0, entry, handles, Path(folder), run_dir=Path(folder))
    context = Context(assignment, world, record, MonotonicClock(), NoPipe())
    resolve_name(entry)(context)


class Daemon(Side):
    """The learner of a daemon, or its gateway, on a filled replay."""

    def __init__(self, name: str, config: Config) -> None:
        self._pattern = PatternWorld(config, with_network(config), config.replay.capacity)
        self._world = self._pattern.world
        self._record = self._world.metrics.learners[0]
        self._desired = DesiredState(config, learner_ring=[0], go=True)
        self._pause(paused=True)
        gateway = config.learning.where == "cluster"
        entry = "rtagent.cluster.gateway:run" if gateway else "rtagent.learning.learner:run"
        folder = config.state_dir / name
        folder.mkdir()
        self.process = multiprocessing.get_context("spawn").Process(
            target=work, args=(self._pattern.memory.handles, entry, str(folder))
        )
        self.process.start()
        until(self._is_ready, f"{name} is ready")

    def run(self, batch_size: int, settle_s: float, seconds: float) -> Block:
        self._pause(paused=False, batch_size=batch_size)
        self._let_pass(settle_s)
        first, began = self._next_update()
        updates: list[float] = []
        while True:
            self._let_pass(0.0)
            last, now = self._next_update()
            updates.append(self._record.update_ns / 1e9)
            if now - began >= seconds:
                break
        self._pause(paused=True)
        return Block((last - first) / (now - began), float(np.mean(updates)))

    def close(self) -> None:
        self._desired = replace(self._desired, stop=True)
        self._world.control.write(self._desired)
        self.process.join(STOP_S)
        if self.process.is_alive():
            self.process.kill()
            self.process.join()
        self._pattern.close()

    def _is_ready(self) -> bool:
        if not self.process.is_alive():
            raise RuntimeError("the learner's process has ended")
        link = self._world.cluster
        return bool(self._record.ready) and (link is None or bool(link.read().get("connected")))

    def _pause(self, *, paused: bool, **changes: Any) -> None:
        config = self._desired.config
        learning = config.learning.model_copy(update={"paused": paused, **changes})
        config = config.model_copy(update={"learning": learning})
        self._desired = replace(self._desired, config=config)
        self._world.control.write(self._desired)

    def _let_pass(self, seconds: float) -> None:
        """Wait while the world goes on."""
        end = time.monotonic() + seconds
        while True:
            self._pattern.play_until(time.monotonic(), TICKS_PER_S)
            if time.monotonic() >= end:
                return
            time.sleep(min(BESIDE_S, end - time.monotonic()))

    def _next_update(self) -> tuple[int, float]:
        """Wait until an update is done; the number of updates so far, and the time."""
        before = int(self._record.applied)
        until(lambda: int(self._record.applied) != before, "an update is made", POLL_S)
        return int(self._record.applied), time.monotonic()


# ---- the update alone


class Alone(Side):
    """The learner's update, on one batch again and again, in this process."""

    def __init__(self, config: Config) -> None:
        torch.set_num_threads(1)
        self._config, self._blueprint = config, with_network(config)
        self._trainer = begun(config, self._blueprint)

    def run(self, batch_size: int, settle_s: float, seconds: float) -> Block:
        batch = empty_batch(self._blueprint, batch_size)
        self._learn(batch, settle_s)
        count, took = self._learn(batch, seconds)
        return Block(count / took, took / count)

    def _learn(self, batch: Batch, seconds: float) -> tuple[int, float]:
        count, began = 0, time.monotonic()
        while not count or time.monotonic() - began < seconds:
            self._trainer.learn(batch, self._config.learning.learning_rate)
            count += 1
        return count, time.monotonic() - began

    def close(self) -> None:
        """There is no process to end."""


# ---- a plain replay actor


class Plain(Side):
    """A plain replay actor and a learner that asks it.

    Args:
        config: names the network.
        dtype: of the frames, uint8 or float32.
        learns: if False, the update takes no time.
    """

    def __init__(self, config: Config, dtype: str, *, learns: bool = True) -> None:
        import ray

        self._ray = ray
        shapes = replace(with_network(config), frame_dtype=dtype)
        options = {"num_cpus": 0, "resources": {ray_session.RESOURCE: 0.001}}
        self._replay: Any = ray.remote(PlainReplay).options(**options).remote(PLAIN_ROWS, shapes)
        self._learner: Any = ray.remote(PlainLearner).options(**options).remote(
            self._replay, config, shapes, learns=learns
        )

    def run(self, batch_size: int, settle_s: float, seconds: float) -> Block:
        self._ray.get(self._learner.run.remote(batch_size, settle_s))
        run = self._learner.run.remote(batch_size, seconds)
        batches, took, update_s = self._ray.get(run)
        return Block(batches / took, update_s)

    def close(self) -> None:
        self._ray.kill(self._learner)
        self._ray.kill(self._replay)


# ---- the cluster


@contextmanager
def cluster() -> Iterator[str]:
    """A Ray of this machine alone, with room for many learners; its address."""
    # Its actors have to have the priority of the daemon's learner: by default Ray makes them nicer
    # by 15, and then any other program takes their time.
    os.environ.update(RAY_worker_niceness="0")
    ray_session.connect(None, {ray_session.RESOURCE: LEARNERS})
    import ray

    try:
        yield ray.get_runtime_context().gcs_address
    finally:
        ray_session.disconnect()


def start_idle_learner(name: str) -> None:
    """Start a learner of that name whose update takes no time, before a gateway looks for it."""
    import ray

    from benchmarks.cluster.idle_learner import IdleLearner

    ray.remote(IdleLearner).options(
        name=name, namespace=ray_session.NAMESPACE, lifetime="detached", num_cpus=0,
        resources={ray_session.RESOURCE: 1.0}, max_concurrency=ray_session.CALLS_AT_ONCE,
    ).remote(None)
