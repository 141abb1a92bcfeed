"""Carries out the coordinator's decisions: how large the rings may be, reserved ahead."""

from __future__ import annotations

from rtagent.errors import UserError
from rtagent.memory.control import DesiredState
from rtagent.memory.world import World, WorldMemory
from rtagent.r3.coordinator import Coordinator
from rtagent.r3.publication import Changes
from rtagent.supervisor.status import Report


class MemoryKeeping:
    """Keeps memory within its budget, and the rings reserved ahead of the writer."""

    def __init__(
        self, memory: WorldMemory, world: World, coordinator: Coordinator, report: Report
    ) -> None:
        self._memory = memory
        self._world = world
        self._coordinator = coordinator
        self._report = report
        self._short = False

    @property
    def ticks_limit(self) -> int:
        """Ticks that the replay may keep now."""
        return self._coordinator.ticks_limit

    def step(self, now: float, desired: DesiredState) -> Changes | None:
        """Adapt rings and reservations once; returns the changes to put in force, if any.

        Raises:
            UserError: the budget is below what the workers need.
        """
        settled = self._maintain(self.ticks_limit)
        return self._coordinator.step(now, desired, settled=settled)

    def give_back(self, changes: Changes) -> None:
        """Give memory back at once, if it is short."""
        while changes.urgent and not self._maintain(changes.ticks_limit):
            pass

    def _maintain(self, limit: int) -> bool:
        """Bring the rings nearer to a limit, ticks; whether they are there, or cannot be.

        A lack of memory is reported once, until it is over.
        """
        try:
            settled = self._memory.maintain(self._world.ledger.newest, limit)
        except UserError as error:
            if not self._short:
                self._report.event("memory", source="supervisor", error=str(error))
            self._short = True
            return True
        self._short = False
        return settled
