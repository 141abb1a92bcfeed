"""Acting and learning by turns: one inference process and one learner wait for each other.

Why it is correct. Each of two words has one writer. The inference process counts what it has
permitted; the learner stores the number of the newest permission that it has seen and dealt with.
Each process rings the bell on which the other one sleeps, which also orders the words
(`wakeup.py`), on ARM64, too. Every wait has a time limit, after which the waiting process looks
whether the other one is still alive. The counts outlive both processes, so a successor goes on from
them: a permission that a dead learner was given passes to the next learner, and one that a dead
inference process has given is dealt with once, like any other.
"""

from __future__ import annotations

from rtagent.clock import Clock
from rtagent.memory.records import WORD, SharedRecord
from rtagent.memory.wakeup import Doorbell


class Alternation(SharedRecord, behind=2 * WORD):
    """Whose turn it is.

    Args:
        buffer: `Alternation.size()` writable bytes.

    Attributes:
        permitted: updates permitted so far. Writer: the inference process.
        answered: the newest permission that has been dealt with. Writer: the learner.
    """

    permitted: int
    answered: int

    def __init__(self, buffer: memoryview) -> None:
        super().__init__(buffer)
        self._permits, self._answers = Doorbell(self._rest, 0), Doorbell(self._rest, WORD)

    def permit(self) -> int:
        """Permit one update; the number of the permission. The inference process."""
        self.permitted += 1
        self._permits.ring()
        return self.permitted

    def wait_for_answer(self, number: int, clock: Clock, timeout: float) -> bool:
        """Wait until a permission has been dealt with, `timeout` seconds at most; whether it is."""
        return self._answers.wait_for(lambda: self.answered >= number, clock, timeout)

    def wait_for_permit(self, clock: Clock, timeout: float) -> int | None:
        """Wait for a permission, `timeout` seconds at most; its number, if there is one."""
        self._permits.wait_for(lambda: self.permitted > self.answered, clock, timeout)
        permitted = self.permitted
        return permitted if permitted > self.answered else None

    def answer(self, number: int) -> None:
        """Say that a permission was dealt with, with or without an update. The learner."""
        self.answered = number
        self._answers.ring()
