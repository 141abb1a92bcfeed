"""The process metrics: what each process counts and measures about itself.

Why it is correct. Every process owns one record, and writes nothing else; while it does not run,
the supervisor writes what holds then (`ready`, `writing`, a mark of its end). Each field is an
aligned 8-byte word, which the hardware stores in one piece. Registrations, episodes and marks are
lists of their newest entries (`ring.py`). The length of a step is written before the row of its
tick, and looked up by the ticks of rows. What the environment does and since when is one word, so
that neither is read without the other. The counts of a killed process stay: its successor goes on
from them.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from functools import cached_property
from itertools import takewhile
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from rtagent.config import MAX_INFERENCE_PROCESSES, MAX_LEARNERS
from rtagent.memory.records import WORD, Layout, SharedRecord
from rtagent.memory.ring import Entries, EntryList

SAMPLES = 4096
"""Registrations kept per inference process: a minute at 60 ticks per second, for one alone."""
EPISODES = 1024
STEPS = 65_536
"""Lengths of the environment's steps that are kept: a minute at 1000 ticks per second."""
MARKS = 64
"""Notes that are kept of how many gradients a learner had applied at some time."""


class Doing(IntEnum):
    """What the environment process is doing."""

    WAITING = 0
    STEPPING = 1
    RESETTING = 2


@dataclass(slots=True)
class FinishedEpisode:
    """A finished episode.

    Attributes:
        end_tick: its last tick, whose row says how it ended.
        length: ticks.
        return_: sum of its rewards.
        episode: its number.
    """

    end_tick: int
    length: int
    return_: float
    episode: int


@dataclass(slots=True)
class Registration:
    """A registered action.

    Attributes:
        registered_ns: when, monotonic nanoseconds.
        latency_ns: its inference time.
        tick: the tick it is meant for.
        ticks: consecutive ticks, from that one on, that it has an action for; of a chunk more than
            one.
    """

    registered_ns: int
    latency_ns: int
    tick: int
    ticks: int = 1


@dataclass(slots=True)
class Mark:
    """How many gradients a learner had applied at a time."""

    at_ns: int
    applied: int


_EPISODE, _REGISTRATION, _MARK = Layout(FinishedEpisode), Layout(Registration), Layout(Mark)


class WorkerRecord(SharedRecord):
    """The fields that every process has.

    Attributes:
        ready: whether it works; the supervisor corrects it if it dies.
    """

    heartbeat_ns: int
    pid: int
    ready: int


class EnvironmentRecord(WorkerRecord, behind=STEPS * WORD + EntryList.size(_EPISODE, EPISODES)):
    """What the environment process counts.

    A tick is counted by one store, into `agent`, `reused` or `default`: killed at any instant, the
    environment has either counted it or not.

    Attributes:
        first_due_ns: when the run's first tick was due.
        decisions: inferences of which it has executed an action, at the tick that the action was
            for, or late.
        chosen: the newest tick that it looked for actions for, so that others come too late.
        faults: episodes cut short because a reward or an observation was not finite; a fault in a
            reset cuts none.
        behind_ns: from the moment at which a tick was due until its frame was ready, of the newest.
        episodes: the newest that have finished.
    """

    first_due_ns: int
    anchor_ns: int
    anchor_tick: int
    slips: int
    slipped_ns: int
    agent: int
    reused: int
    default: int
    decisions: int
    chosen: int
    behind_ns: int
    doing_since: int
    reset_ns: int
    realtime: int
    faults: int
    reward_low: float
    reward_high: float

    def __init__(self, buffer: memoryview) -> None:
        super().__init__(buffer)
        self._steps_ns = np.frombuffer(self._rest, "<i8", STEPS)
        self.episodes = EntryList(self._rest[STEPS * WORD :], _EPISODE, EPISODES)

    @property
    def ticks(self) -> int:
        """Ticks that are counted."""
        return self.agent + self.reused + self.default

    @property
    def doing(self) -> tuple[Doing, int]:
        """What the process is doing, and since when (monotonic nanoseconds)."""
        since_ns, doing = divmod(self.doing_since, len(Doing))
        return Doing(doing), since_ns

    def note_doing(self, doing: Doing, now_ns: int) -> None:
        """Note what the process is doing from now on."""
        self.doing_since = now_ns * len(Doing) + doing

    def add_step(self, tick: int, length_ns: int) -> None:
        """Note how long the step of a tick took; before its row is written."""
        self._steps_ns[tick % STEPS] = length_ns

    def step_lengths(self, ticks: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Nanoseconds that the steps of the newest `STEPS` ticks took, in the order of `ticks`."""
        return self._steps_ns[ticks[-STEPS:] % STEPS]


class InferenceRecord(WorkerRecord, behind=EntryList.size(_REGISTRATION, SAMPLES)):
    """What an inference process counts.

    Attributes:
        engine: that acts, by its place in `engine_models.ENGINES`.
        precision: of the engine, by its place in `engine_models.PRECISIONS`.
        agreement: of its model with torch, see `ModelInfo`.
        connected: whether there is a connection to a policy server, and it has answered.
        round_trip_ns: of a question to the server, without the server's own time; smoothed, as are
            `queue_ns` and `compute_ns`, the parts of the server's time.
        in_flight: questions that are not answered yet.
        dropped: answers about frames older than the newest that was acted on.
        hedged: questions that were late, so that the newest frame was asked about instead.
        takeover_ns: time that taking over new weights has cost all inferences so far.
        registrations: the newest.
    """

    inferences: int
    weights_version: int
    epsilon: float
    estimate_s: float
    ahead_ns: int
    awake_ns: int
    engine: int
    precision: int
    agreement: float
    connected: int
    round_trip_ns: int
    queue_ns: int
    compute_ns: int
    in_flight: int
    dropped: int
    hedged: int
    takeover_ns: int

    def __init__(self, buffer: memoryview) -> None:
        super().__init__(buffer)
        self.registrations = EntryList(self._rest, _REGISTRATION, SAMPLES)

    def registrations_since(self, since_ns: int) -> Entries:
        """The kept registrations at `since_ns` or later."""
        found = self.registrations.newest()
        return found[found["registered_ns"] >= since_ns]


PLACEMENTS = ("off", "measuring", "one core", "two cores", "taken back", "failed")
"""How the parts of a learner's step are placed: not at all; the plan is being made; the plan uses
one core; it uses two; it was slower than no plan, and is not followed; no plan could be made."""


class LearnerRecord(WorkerRecord, behind=EntryList.size(_MARK, MARKS)):
    """What a learner counts.

    Attributes:
        writing: whether it writes a checkpoint; the supervisor corrects it if it dies meanwhile.
        placement: a place in `PLACEMENTS`.
    """

    updates: int
    applied: int
    dropped: int
    samples_consumed: int
    loss: float
    update_ns: int
    staleness_sum: int
    staleness_max: int
    skipped: int
    checkpoints: int
    writing: int
    checkpoint_failures: int
    out_of_memory: int
    control_ns: int
    applied_ns: int
    precision: int
    loss_scale: float
    overflows: int
    placement: int

    def __init__(self, buffer: memoryview) -> None:
        super().__init__(buffer)
        self._marks = EntryList(self._rest, _MARK, MARKS)

    def add_mark(self, at_ns: int) -> None:
        """Note how many gradients have been applied by now."""
        self._marks.append(Mark(at_ns, self.applied))

    def applied_rate(self, now_ns: int, over_ns: int) -> float | None:
        """Gradients applied per second over the last `over_ns`.

        Of a younger learner, since its first mark; None if no mark is at least a fifth and at most
        twice of `over_ns` old.
        """
        marks = self._marks.newest()
        marks = marks[marks["at_ns"] >= now_ns - 2 * over_ns]
        if not len(marks):
            return None
        since_ns = max(now_ns - over_ns, int(marks["at_ns"][0]))
        if now_ns - since_ns < over_ns / 5:
            return None
        applied = self.applied
        before = np.interp(since_ns, [*marks["at_ns"], now_ns], [*marks["applied"], applied])
        return float(applied - before) * 1e9 / (now_ns - since_ns)


class EvaluationRecord(WorkerRecord):
    """What the evaluation process counts, and the outcome of the last evaluation."""

    evaluations: int
    episodes: int
    mean_return: float
    updates: int
    weights_version: int


class ConverterRecord(WorkerRecord):
    """What the converter counts.

    Attributes:
        conversions: models that it has published.
        refused: models that did not agree with torch.
        conversion_ns: CPU time of the newest snapshot's conversion, its check included.
    """

    conversions: int
    refused: int
    conversion_ns: int


_PLACES: dict[str, tuple[type[WorkerRecord], int]] = {
    "environment": (EnvironmentRecord, 1),
    "learner": (LearnerRecord, MAX_LEARNERS),
    "service": (WorkerRecord, 1),
    "evaluation": (EvaluationRecord, 1),
    "recorder": (WorkerRecord, 1),
    "converter": (ConverterRecord, 1),
    "inference": (InferenceRecord, MAX_INFERENCE_PROCESSES),
}
"""The records of each role lie one behind the other, in this order."""

Own = TypeVar("Own", bound=WorkerRecord)


class ProcessMetrics:
    """All records.

    Args:
        buffer: `ProcessMetrics.size()` bytes, aligned to 8; writable for owners of a record.

    Attributes:
        environment: the record of the environment.
        service: of the service.
        evaluation: of the evaluation.
        converter: of the converter.
    """

    def __init__(self, buffer: memoryview) -> None:
        self._buffer = buffer
        self.environment = self._own(EnvironmentRecord, "environment")
        self.service = self._own(WorkerRecord, "service")
        self.evaluation = self._own(EvaluationRecord, "evaluation")
        self.converter = self._own(ConverterRecord, "converter")

    @staticmethod
    def size() -> int:
        """Bytes of the metrics."""
        return sum(kind.size() * count for kind, count in _PLACES.values())

    @cached_property
    def learners(self) -> list[LearnerRecord]:
        """The records of `MAX_LEARNERS` learners."""
        return [self._own(LearnerRecord, "learner", index) for index in range(MAX_LEARNERS)]

    @cached_property
    def inference(self) -> list[InferenceRecord]:
        """The records of `MAX_INFERENCE_PROCESSES` inference processes."""
        return [self._own(InferenceRecord, "inference", i) for i in range(MAX_INFERENCE_PROCESSES)]

    def record(self, role: str, index: int) -> WorkerRecord:
        """The record of one process, made for the caller alone.

        Args:
            role: environment, inference, learner, service, evaluation, recorder or converter.
            index: number of the process within its role.
        """
        return self._own(_PLACES[role][0], role, index)

    def _own(self, kind: type[Own], role: str, index: int = 0) -> Own:
        before = takewhile(lambda each: each[0] != role, _PLACES.items())
        at = sum(each.size() * count for _, (each, count) in before) + kind.size() * index
        return kind(self._buffer[at : at + kind.size()])
