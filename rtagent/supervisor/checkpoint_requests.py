"""Checkpoints that are requested while the run goes on.

The first of the running learners writes them. The desired state carries the number of the newest
request, and the learner names that number when it reports a checkpoint. The report answers every
request up to that number that has no answer yet. If all learners have died or left before that,
requests are answered, too. The replay, if it is requested too, is saved by a process of its own.
"""

from __future__ import annotations

from typing import Any

from rtagent.errors import UserError
from rtagent.memory.world import WorldHandles
from rtagent.supervisor.child import State
from rtagent.supervisor.children import Children
from rtagent.supervisor.commands import InForce, NotInForce
from rtagent.supervisor.replay_keeping import ReplayKeeping

LIMIT_S = 600.0
"""A checkpoint with the replay may take so long."""
KEPT = 16
"""Outcomes that are remembered; requests look for theirs ten times a second."""
LATE = "ordered, but not all of it is written yet; the events checkpoint and replay tell when it is"


class CheckpointRequests:
    """Requests and their outcomes; `saving` saves the replay."""

    def __init__(self, saving: ReplayKeeping, children: Children) -> None:
        self._saving, self._children = saving, children
        self._written: dict[int, dict[str, Any]] = {}

    def begin(self, number: int, arguments: dict[str, Any], handles: WorldHandles) -> InForce:
        """Take in a request; the function that is returned tells its outcome, once there is one.

        Args:
            number: of the request.
            arguments: `replay`: whether to save it, too.

        Raises:
            UserError: it cannot be carried out now; nothing has been begun.
        """
        replay = bool(arguments.get("replay", False))
        if replay:
            if self._saving.busy:
                raise UserError("the replay is being saved already")
            self._saving.start_save(handles)
        return lambda: self._outcome(number, replay)

    def note(self, outcome: dict[str, Any]) -> dict[str, Any]:
        """Take in what a learner reports of a checkpoint; returns it without the request's number.
        """
        details = dict(outcome)
        request = details.pop("request", None)
        if isinstance(request, int):
            # A later checkpoint that was not requested names the newest request, too.
            self._written.setdefault(request, details)
            while len(self._written) > KEPT:
                del self._written[min(self._written)]
        return details

    def _outcome(self, number: int, replay: bool) -> dict[str, Any] | None:
        answers = [each for each in self._written if each >= number]
        if not answers:
            self._expect_writer()
        if not answers or (replay and self._saving.busy):
            return None
        written = self._written[min(answers)]
        outcome = self._saving.outcome if replay else None
        if reason := written.get("reason"):
            raise UserError(f"the checkpoint could not be written: {reason}")
        if failed := (outcome or {}).get("failed"):
            raise UserError(f"{written['file']} is written, but not the replay: {failed}")
        return written | {"replay": replay}

    def _expect_writer(self) -> None:
        """Raise `NotInForce` if no learner is left that may write."""
        learners = self._children.of("learner")
        if any(child.alive for child in learners):
            return
        died = [each for each in learners if each.state in (State.BACKOFF, State.FAILED)]
        why = f"{died[0].name} has died: {died[0].last_line}" if died else "all learners have left"
        raise NotInForce(
            f"the checkpoint is not written, since {why}; the next learner that starts writes it, "
            "and the event checkpoint tells when"
        )
