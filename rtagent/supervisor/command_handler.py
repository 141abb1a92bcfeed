"""Carries out commands: puts new settings in force or refuses them whole, has checkpoints written.

Why it is correct. All of it runs in the supervisor's thread. The steps that can refuse come first,
then the control cell is written, then the rest: a refused command has changed nothing. A command is
answered once the processes follow it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from rtagent.clock import Clock
from rtagent.config import Config
from rtagent.config.recurrent import check_recurrent
from rtagent.errors import UserError
from rtagent.live_config import live_values
from rtagent.memory.control import Control, DesiredState
from rtagent.memory.world import World, WorldMemory
from rtagent.processes.limit import check_processes
from rtagent.r3.coordinator import Coordinator
from rtagent.r3.memory_usage import NotMeasured
from rtagent.supervisor.checkpoint_requests import LATE, LIMIT_S, CheckpointRequests
from rtagent.supervisor.child import State
from rtagent.supervisor.children import Children
from rtagent.supervisor.commands import (
    CHANGE_LIMIT_S,
    Command,
    Inbox,
    NotInForce,
    PendingChanges,
    Result,
    internal_error,
    on_their_way,
    running,
)
from rtagent.supervisor.live_settings import change, check_default_action, first_state, scaled
from rtagent.supervisor.status import Report

ROLES = {"inference": "inference", "learning": "learner"}
"""The processes that follow the settings of a section."""


class Desired:
    """The desired state with every change so far, and the control cell that tells the workers.

    Attributes:
        current: what the workers are told.
    """

    def __init__(self, config: Config) -> None:
        self.current = first_state(config)
        self._control: Control | None = None

    @property
    def config(self) -> Config:
        """The configuration with every change so far."""
        return self.current.config

    def publish(self, control: Control) -> None:
        """Tell the workers from now on."""
        self._control = control
        control.write(self.current)

    def put(self, state: DesiredState) -> None:
        """Put a state in force; where the cell refuses it, nothing has changed."""
        if self._control is not None:
            self._control.write(state)
        self.current = state

    def change(self, **changes: Any) -> None:
        """Put a changed state in force."""
        state = replace(self.current, **changes)
        if state != self.current:
            self.put(state)

    def scale(self, processes: int) -> None:
        """Put another number of inference processes in force, where that is `auto`."""
        self.put(scaled(self.current, processes))


class CommandHandler:
    """Takes the commands that wait, and answers each once it is in force.

    Args:
        memory: reserves memory for learners.
        coordinator: takes a new memory budget.
        most_processes: inference processes and learners that the machine has room for.
        report: takes an event for every change.
    """

    def __init__(
        self, desired: Desired, inbox: Inbox, pending: PendingChanges,
        checkpoints: CheckpointRequests, memory: WorldMemory, world: World, children: Children,
        coordinator: Coordinator, most_processes: int, report: Report, clock: Clock,
    ) -> None:
        self._desired = desired
        self._inbox = inbox
        self._pending = pending
        self._checkpoints = checkpoints
        self._memory = memory
        self._world = world
        self._children = children
        self._coordinator = coordinator
        self._most_processes = most_processes
        self._report = report
        self._clock = clock
        self._inference_changed = False
        self._late: dict[str, set[str]] = {}

    def take(self) -> None:
        """Carry out what waits; an unexpected error is raised after all have been carried out."""
        failure: Exception | None = None
        for command in list(self._inbox.take()):
            try:
                if command.name == "checkpoint":
                    self._checkpoint(command)
                elif command.name == "set":
                    self._change(command)
                else:
                    raise UserError(f"unknown command {command.name!r}")
            except UserError as error:
                command.result.set_exception(error)
            except NotMeasured:
                self._wait_for_measurement(command)
            except Exception as error:
                # The sender must not wait in vain.
                command.result.set_exception(internal_error(error))
                failure = failure or error
        if failure is not None:
            raise failure

    def _wait_for_measurement(self, command: Command) -> None:
        """Carry a command out later, or refuse it if it has waited too long."""
        now = self._clock.now()
        until = now + CHANGE_LIMIT_S if command.until is None else command.until
        if now < until:
            self._inbox.put_back(replace(command, until=until))
        else:
            command.result.set_exception(UserError(
                "r3.memory_budget_mb: how much memory the processes have could not be read in "
                f"{CHANGE_LIMIT_S:.0f} s, so one of them may hang in the kernel (state D in ps); "
                "nothing has changed"
            ))

    def scaled(self) -> None:
        """Take note that the number of inference processes has changed by itself."""
        self._inference_changed = True

    def note_new_settings(self, now: float) -> None:
        """Begin the figures of the last minute anew once changed inference settings are in force;
        report a change that came late into force."""
        if self._inference_changed and self._follows("inference"):
            self._inference_changed = False
            self._desired.change(inference_since=now)
        for section in list(self._late):
            if self._follows(section):
                names = sorted(self._late.pop(section))
                self._report.event("in_force", source=section, settings=names)

    def _change(self, command: Command) -> None:
        """Put new settings in force, or refuse them whole."""
        changes: dict[str, dict[str, Any]] = command.arguments
        before = live_values(self._desired.current.config)
        desired = change(self._desired.current, changes)
        if self._world.blueprint.chunk is not None and desired.learning.processes:
            raise UserError(
                f"learning.processes = {desired.learning.processes}: this policy answers with "
                "chunks of actions, and learners learn single ones"
            )
        if self._world.blueprint.state_size:
            check_recurrent(desired.config)
        check_default_action(desired.config, self._world.blueprint.actions)
        check_processes(desired.config, self._most_processes)
        if "learning" in changes and desired.learning.processes:
            self._memory.reserve_learners()
        # After the other checks, since a budget that is not refused counts at once.
        if "memory_budget_mb" in changes.get("r3", ()):
            self._coordinator.set_budget(desired.r3.memory_budget_mb, desired)
        self._desired.put(desired)
        after = live_values(desired.config)
        self._inference_changed |= after["inference"] != before["inference"]
        for section, given in changes.items():
            if section in ROLES:
                self._children.reset_failed(ROLES[section], self._clock.now())
            new = [name for name in given if after[section][name] != before[section][name]]
            was, now = ({name: each[section][name] for name in new} for each in (before, after))
            if new:
                self._report.event("set", source=section, by=command.by, before=was, after=now)
        command.result.add_done_callback(lambda result: self._note_late(result, changes))
        self._pending.add(
            command.result, lambda: self._values_in_force(changes), self._clock.now(),
            lambda: self._late_change(changes),
        )

    def _note_late(self, result: Result, changes: dict[str, dict[str, Any]]) -> None:
        if isinstance(result.exception(), NotInForce):
            for section, values in changes.items():
                self._late.setdefault(section, set()).update(values)

    def _late_change(self, sections: Iterable[str]) -> str:
        """The answer to a change that is not in force in time."""
        roles = [ROLES[section] for section in sections if section in ROLES]
        waits = on_their_way([child for role in roles for child in self._children.of(role)])
        return (
            "accepted and under way, but not in force in time; it waits for "
            f"{waits or 'processes that are busy'}: `rtagent status` shows them, and the event "
            "in_force tells when it is in force"
        )

    def _values_in_force(self, sections: Iterable[str]) -> dict[str, Any] | None:
        """The live settings of some sections once the processes follow them; None before."""
        if not all(self._follow(section) for section in sections):
            return None
        values = live_values(self._desired.current.config)
        return {section: values[section] for section in sections}

    def _follows(self, section: str) -> bool:
        """Whether they follow the settings, see `_follow`; false where a process has failed."""
        try:
            return self._follow(section)
        except NotInForce:
            return False

    def _follow(self, section: str) -> bool:
        """Whether the processes follow a section's settings.

        Raises:
            NotInForce: one of them has failed.
        """
        desired = self._desired.current
        if section == "inference":
            same = self._world.stagger.algorithm == desired.inference.algorithm
            return same and running(self._children.of("inference"), desired.processes)
        if section == "learning":
            return running(self._children.of("learner"), desired.learning.processes)
        return True

    def _checkpoint(self, command: Command) -> None:
        """Have a checkpoint written, and the replay if that is requested."""
        wanted = self._desired.current.learning.processes
        if not any(
            child.state in (State.STARTING, State.RUNNING) and child.index < wanted
            for child in self._children.of("learner")
        ):
            raise UserError("no learner runs that could write a checkpoint")
        number = self._desired.current.checkpoint + 1
        in_force = self._checkpoints.begin(number, command.arguments, self._memory.handles)
        self._desired.change(checkpoint=number)
        self._pending.add(command.result, in_force, self._clock.now(), lambda: LATE, LIMIT_S)
