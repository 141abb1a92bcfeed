"""The metrics board: what each process counts and measures about itself.

Why it is correct. Every process owns one record, and writes nothing else; each field is an aligned
4- or 8-byte value, which the hardware stores in one piece. The two rings (registrations, episodes)
are written before their count; a reader that is lapped sees a newer entry, or at worst fields of
two, which only a figure of the last minute can notice. A killed process's counts stay: its
successor goes on from them.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from rtagent.config import MAX_INFERENCE_PROCESSES, MAX_LEARNERS

SAMPLES = 4096
"""Registrations kept per inference process: a minute at 60 ticks per second, for one alone."""
EPISODES = 1024

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
        ("step_ns", "<i8"),
        ("realtime", "<i8"),
        ("faults", "<i8"),
        ("recent", _EPISODE, EPISODES),
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
        ("samples", "<i8"),
        ("recent", _SAMPLE, SAMPLES),
    ]
)
_LEARNER = np.dtype(
    [
        *_WORKER,
        ("updates", "<i8"),
        ("applied", "<i8"),
        ("dropped", "<i8"),
        ("updates_per_s", "<f8"),
        ("samples_consumed", "<i8"),
        ("weights_version", "<i8"),
        ("loss", "<f8"),
        ("update_ns", "<i8"),
        ("staleness_sum", "<i8"),
        ("staleness_max", "<i8"),
        ("skipped", "<i8"),
        ("checkpoints", "<i8"),
        ("checkpoint_ns", "<i8"),
        ("checkpoint_failures", "<i8"),
        ("out_of_memory", "<i8"),
        ("control_ns", "<i8"),
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


class Board:
    """All records.

    Args:
        buffer: `Board.size()` writable bytes.

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
        """Bytes of the board."""
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
    count = int(record["samples"][0])
    record["recent"][0, count % SAMPLES] = (registered_ns, latency_ns, tick)
    record["samples"][0] = count + 1


def registrations_since(record: Record, since_ns: int) -> Record:
    """Registrations at `since_ns` or later: fields registered_ns, latency_ns, tick; in no order."""
    samples: Record = record["recent"][0, : min(int(record["samples"][0]), SAMPLES)].copy()
    chosen: Record = samples[samples["registered_ns"] >= since_ns]
    return chosen


def add_episode(record: Record, episode: int, end_tick: int, length: int, total: float) -> None:
    """Append a finished episode to the environment's record. Only the environment process."""
    count = int(record["episodes"][0])
    record["recent"][0, count % EPISODES] = (end_tick, length, total, episode)
    record["episodes"][0] = count + 1


def recent_episodes(record: Record, most: int) -> Record:
    """The newest finished episodes, oldest first: fields end_tick, length, return, episode."""
    count = int(record["episodes"][0])
    wanted = np.arange(max(0, count - min(most, EPISODES)), count) % EPISODES
    episodes: Record = record["recent"][0][wanted].copy()
    return episodes
