"""A horizon on whose updates, episodes and time a test decides."""

from __future__ import annotations

from typing import Any

from rtagent.clock import NANO
from rtagent.config import R3Config
from rtagent.memory.control import DesiredState
from rtagent.memory.horizon import KINDS, OUTCOMES, Decision, Horizon, HorizonRecord
from rtagent.memory.process_metrics import FinishedEpisode, ProcessMetrics
from rtagent.memory.records import Layout
from rtagent.memory.ring import EntryList
from rtagent.r3.controller import HorizonKeeper
from tests.conftest import private
from tests.desired import make_desired, with_changes

B_MIN = 32
SECOND = NANO


def of_mode(mode: str = "step", **r3: Any) -> DesiredState:
    wanted = {"mode": mode, "deadline_s": 10.0, "data_budget": 10_000, **r3}
    return make_desired(learner_ring=[0], learning={"processes": 1, "batch_size": B_MIN}, r3=wanted)


class GrowingEpisodes(EntryList[FinishedEpisode]):
    """A list of episodes in which one more ends whenever its length has been read.

    Args:
        values: returns of all episodes; the first one has ended.
    """

    def __init__(self, values: list[float]) -> None:
        layout, kept = Layout(FinishedEpisode), 16
        super().__init__(memoryview(bytearray(self.size(layout, kept))), layout, kept)
        self._coming = [FinishedEpisode(10, 10, value, 0) for value in values]
        self.append(self._coming.pop(0))

    @property
    def count(self) -> int:
        found = super().count
        if self._coming:
            self.append(self._coming.pop(0))
        return found


class Life:
    """A horizon on whose updates, episodes and time the test decides."""

    def __init__(self, mode: str = "step", **r3: Any) -> None:
        settings = {"deadline_s": 10.0, "data_budget": 10_000, "margin": 0.0, **r3}
        self.record = private(HorizonRecord)
        self.environment = private(ProcessMetrics).environment
        self.keeper = HorizonKeeper(self.record, R3Config(mode=mode, **settings))
        self.desired = of_mode(mode)
        self.now_ns, self.updates, self.ended = 1000 * SECOND, 0, 0
        self._seen, self._number = Horizon(), -1

    def change_settings(self, **changes: Any) -> None:
        self.desired = with_changes(self.desired, **changes)

    def update(self, seconds: float, samples: int | None = None) -> str | None:
        """Apply an update that took so long, and count it at once."""
        self.keeper._advanced_ns = 0
        return self.quick_update(seconds, samples)

    def quick_update(self, seconds: float, samples: int | None = None) -> str | None:
        """Apply an update, which may be counted together with the next one."""
        self.now_ns += round(seconds * NANO)
        self.updates += 1
        samples = self.size if samples is None else samples
        return self._advance(samples)

    def wait(self, seconds: float) -> str | None:
        """Let time pass, after which the supervisor advances the horizon."""
        self.now_ns += round(seconds * NANO)
        return self._advance(0)

    def _advance(self, samples: int) -> str | None:
        """How the horizon ended, if it did."""
        before = self.record.count
        self.keeper.advance(self.now_ns, samples, self.updates, self.environment, self.desired)
        kinds = [KINDS[each.kind] for each in self.record.decisions(since=before)]
        return next((kind for kind in kinds if kind in OUTCOMES), None)

    def finish_episode(self, value: float = 0.0) -> None:
        self.ended += 1
        self.environment.episodes.append(FinishedEpisode(10 * self.ended, 10, value, self.ended))

    @property
    def horizon(self) -> Horizon:
        """The horizon that was written last; each write makes a new one."""
        if self._number != self.record.number:
            self._seen, self._number = self.record.read(), self.record.number
        return self._seen

    @property
    def size(self) -> int:
        return self.keeper.batch_size(self.desired)

    def decisions(self, *kinds: str) -> list[Decision]:
        """The decisions of these kinds."""
        return [each for each in self.record.decisions() if KINDS[each.kind] in kinds]


def begun(mode: str = "step", **r3: Any) -> Life:
    """A horizon that an update of one sample has begun."""
    life = Life(mode, **r3)
    life.update(0.0, samples=1)
    return life
