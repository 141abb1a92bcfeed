"""The process metrics: what each process counts and measures about itself.

Why it is correct. Every process owns one record, and writes nothing else; each field is an aligned
4- or 8-byte value, which the hardware stores in one piece. Registrations, episodes and marks are
lists of their newest entries (`ring.py`). The length of a step is written before the row of its
tick, and looked up by the ticks of rows. What the environment does and since when is one word, so
that neither is read without the other. A killed process's counts stay: its successor goes on from
them.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Any

import numpy as np
import numpy.typing as npt

from rtagent.config import MAX_INFERENCE_PROCESSES, MAX_LEARNERS
from rtagent.memory.ring import append, newest_entries

SAMPLES = 4096
"""Registrations kept per inference process: a minute at 60 ticks per second, for one alone."""
EPISODES = 1024
STEPS = 65_536
"""Lengths of the environment's steps that are kept: a minute at 1000 ticks per second."""

MARKS = 64
"""Times at which a learner has noted how many gradients it has applied."""


class Doing(IntEnum):
    """What the environment process is doing."""

    WAITING = 0
    STEPPING = 1
    RESETTING = 2


_WORKER = [("heartbeat_ns", "<i8"), ("pid", "<i8"), ("ready", "<i8")]

_EPISODE = np.dtype([("end_tick", "<i8"), ("length", "<i8"), ("return", "<f8"), ("episode", "<i8")])
_ENVIRONMENT = np.dtype(
    [
        *_WORKER,
        ("ticks", "<i8"),
        ("anchor_ns", "<i8"),
        ("anchor_tick", "<i8"),
        ("slips", "<i8"),
        ("slipped_ns", "<i8"),
        ("agent", "<i8"),
        ("reused", "<i8"),
        ("default", "<i8"),
        ("episodes", "<i8"),
        ("behind_ns", "<i8"),
        ("doing_since", "<i8"),
        ("reset_ns", "<i8"),
        ("realtime", "<i8"),
        ("faults", "<i8"),
        ("reward_low", "<f8"),
        ("reward_high", "<f8"),
        ("recent", _EPISODE, EPISODES),
        ("steps_ns", "<i8", STEPS),
    ]
)
_SAMPLE = np.dtype([("registered_ns", "<i8"), ("latency_ns", "<i8"), ("tick", "<i8")])
_INFERENCE = np.dtype(
    [
        *_WORKER,
        ("inferences", "<i8"),
        ("deposits", "<i8"),
        ("weights_version", "<i8"),
        ("epsilon", "<f8"),
        ("estimate_s", "<f8"),
        ("ahead_ns", "<i8"),
        ("awake_ns", "<i8"),
        ("samples", "<i8"),
        ("recent", _SAMPLE, SAMPLES),
    ]
)
_MARK = np.dtype([("at_ns", "<i8"), ("applied", "<i8")])
_LEARNER = np.dtype(
    [
        *_WORKER,
        ("updates", "<i8"),
        ("applied", "<i8"),
        ("dropped", "<i8"),
        ("samples_consumed", "<i8"),
        ("weights_version", "<i8"),
        ("loss", "<f8"),
        ("update_ns", "<i8"),
        ("staleness_sum", "<i8"),
        ("staleness_max", "<i8"),
        ("skipped", "<i8"),
        ("checkpoints", "<i8"),
        ("checkpoint_ns", "<i8"),
        ("writing", "<i8"),
        ("checkpoint_failures", "<i8"),
        ("out_of_memory", "<i8"),
        ("control_ns", "<i8"),
        ("applied_ns", "<i8"),
        ("marked", "<i8"),
        ("marks", _MARK, MARKS),
    ]
)
_EVALUATION = np.dtype(
    [
        *_WORKER,
        ("evaluations", "<i8"),
        ("episodes", "<i8"),
        ("mean_return", "<f8"),
        ("updates", "<i8"),
        ("weights_version", "<i8"),
    ]
)
_RECORDER = np.dtype([*_WORKER, ("rows", "<i8")])
_SERVICE = np.dtype(_WORKER)

Record = npt.NDArray[Any]


class ProcessMetrics:
    """All records.

    Args:
        buffer: `ProcessMetrics.size()` writable bytes.

    Attributes:
        environment: array of one record.
        service: array of one record.
        evaluation: array of one record.
        recorder: array of one record.
        inference: array of `MAX_INFERENCE_PROCESSES` records.
        learners: array of `MAX_LEARNERS` records.
    """

    def __init__(self, buffer: memoryview) -> None:
        self.environment: Record = np.frombuffer(buffer, _ENVIRONMENT, 1)
        at = _ENVIRONMENT.itemsize
        self.learners: Record = np.frombuffer(buffer, _LEARNER, MAX_LEARNERS, at)
        at += _LEARNER.itemsize * MAX_LEARNERS
        self.service: Record = np.frombuffer(buffer, _SERVICE, 1, at)
        at += _SERVICE.itemsize
        self.evaluation: Record = np.frombuffer(buffer, _EVALUATION, 1, at)
        at += _EVALUATION.itemsize
        self.recorder: Record = np.frombuffer(buffer, _RECORDER, 1, at)
        at += _RECORDER.itemsize
        self.inference: Record = np.frombuffer(buffer, _INFERENCE, MAX_INFERENCE_PROCESSES, at)

    @staticmethod
    def size() -> int:
        """Bytes of the metrics."""
        return (
            _ENVIRONMENT.itemsize
            + _LEARNER.itemsize * MAX_LEARNERS
            + _SERVICE.itemsize
            + _EVALUATION.itemsize
            + _RECORDER.itemsize
            + _INFERENCE.itemsize * MAX_INFERENCE_PROCESSES
        )

    def record(self, role: str, index: int) -> Record:
        """The record of one process, as an array of one element.

        Args:
            role: environment, inference, learner, service, evaluation or recorder.
            index: number of the process within its role.
        """
        records = {
            "environment": self.environment,
            "inference": self.inference,
            "learner": self.learners,
            "service": self.service,
            "evaluation": self.evaluation,
            "recorder": self.recorder,
        }[role]
        return records[index : index + 1]


def add_registration(record: Record, registered_ns: int, latency_ns: int, tick: int) -> None:
    """Append a registered action to an inference record. Only its owner.

    Args:
        record: of the process.
        registered_ns: when the action was registered, monotonic nanoseconds.
        latency_ns: its inference time.
        tick: the tick it is meant for.
    """
    append(record["samples"], record["recent"][0], (registered_ns, latency_ns, tick))


def registrations_since(record: Record, since_ns: int) -> Record:
    """Registrations at `since_ns` or later: fields registered_ns, latency_ns, tick."""
    samples = newest_entries(record["samples"], record["recent"][0], SAMPLES)
    chosen: Record = samples[samples["registered_ns"] >= since_ns]
    return chosen


def add_episode(record: Record, episode: int, end_tick: int, length: int, total: float) -> None:
    """Append a finished episode to the environment's record. Only the environment process."""
    append(record["episodes"], record["recent"][0], (end_tick, length, total, episode))


def note_doing(record: Record, doing: Doing, now_ns: int) -> None:
    """Say what is done from now on. Only the environment process.

    Args:
        record: of the environment.
        doing: what.
        now_ns: monotonic nanoseconds.
    """
    record["doing_since"] = now_ns * len(Doing) + doing


def doing_since(record: Record) -> tuple[Doing, int]:
    """What the environment process is doing, and since when (monotonic nanoseconds)."""
    since_ns, doing = divmod(int(record["doing_since"][0]), len(Doing))
    return Doing(doing), since_ns


def add_step(record: Record, tick: int, length_ns: int) -> None:
    """Note how long the environment's step took. Only the environment process, before the row.

    Args:
        record: of the environment.
        tick: that the step made.
        length_ns: nanoseconds.
    """
    record["steps_ns"][0, tick % STEPS] = length_ns


def step_lengths(record: Record, ticks: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Nanoseconds that the steps of the newest `STEPS` ticks took, in the order of `ticks`."""
    lengths: npt.NDArray[np.int64] = record["steps_ns"][0][ticks[-STEPS:] % STEPS]
    return lengths


def add_mark(record: Record, at_ns: int) -> None:
    """Note how many gradients a learner has applied by now. Only its owner."""
    append(record["marked"], record["marks"][0], (at_ns, int(record["applied"][0])))


def applied_rate(record: Record, now_ns: int, over_ns: int) -> float | None:
    """Gradients that a learner has applied per second.

    Args:
        record: of the learner.
        now_ns: monotonic nanoseconds.
        over_ns: the time before, or since the first note of a learner that has not been there for
            so long.

    Returns:
        None if there is no note between a fifth and twice of that time old.
    """
    marks = newest_entries(record["marked"], record["marks"][0], MARKS)
    marks = marks[marks["at_ns"] >= now_ns - 2 * over_ns]
    if not len(marks):
        return None
    since_ns = max(now_ns - over_ns, int(marks["at_ns"][0]))
    if now_ns - since_ns < over_ns / 5:
        return None
    applied = int(record["applied"][0])
    before = np.interp(since_ns, [*marks["at_ns"], now_ns], [*marks["applied"], applied])
    return float(applied - before) * 1e9 / (now_ns - since_ns)


def recent_episodes(record: Record, most: int) -> Record:
    """The newest finished episodes, oldest first: fields end_tick, length, return, episode."""
    return newest_entries(record["episodes"], record["recent"][0], most)
