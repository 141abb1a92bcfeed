"""Tries an environment out, in a process of its own, and reports what it found.

Why it is correct. Before each call the trial announces it, and how long it may take. So the process
at the other end notices that a call hangs, without a thread in this one.
Environments may print: the trial reports through a pipe of its own.
"""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Callable
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
from multiprocess.connection import Connection
from numpy.typing import NDArray

from rtagent.clock import Clock, MonotonicClock
from rtagent.config_sources import parse_config
from rtagent.env.actions import Action
from rtagent.env.adapter import Adapter, Step
from rtagent.env.declarations import noop_action
from rtagent.env.default_action import DefaultBehaviour
from rtagent.env.making import make
from rtagent.env.observers import EnvironmentFault, NotFinite
from rtagent.errors import UserError, place_of, typed_line
from rtagent.processes.scheduling import die_with_parent, sharpen_timers
from rtagent.testing.findings import Findings, Job
from rtagent.testing.leftovers import held, leftovers
from rtagent.testing.observing import NOT_FINITE, Watched, digest, inspect

MAKING_S = 60.0
"""How long the daemon waits for an environment to be made."""
SILENCE_S = 2.0
"""How long the daemon waits, beside two ticks, if it is neither stepped nor reset."""
LOOKING = "looking for what is left"
RESETS = 5
FEWEST_STEPS = 5
MOST_STEPS = 5000
REPEATED_STEPS = 100
NOOP_STEPS = 100

Announce = Callable[[str, float, Findings | None], object]
"""Takes the next call, how many seconds it may take, and at times the findings so far."""


class World(NamedTuple):
    """An environment under trial, the adapter through which rtagent uses it, and what it does when
    the agent does not act."""

    env: Watched
    adapter: Adapter
    default: DefaultBehaviour


def _over(step: Step | None) -> bool:
    return step is None or step.terminated or step.truncated


class Trial:
    """One trial of a job; `announce` takes the calls before they are made."""

    def __init__(self, job: Job, announce: Announce, clock: Clock) -> None:
        self.found = Findings()
        self._job = job
        self._announce = announce
        self._clock = clock
        self._call, self._faults = "", 0
        self._limit_s = MAKING_S
        self._limits = {
            "step()": job.step_limit_s, "reset()": job.reset_limit_s,
            # No call of the environment: a busy machine may take seconds for it.
            LOOKING: MAKING_S,
        }

    def run(self) -> Findings:
        """Do the whole trial; errors are findings."""
        try:
            self._run()
        except BaseException as error:
            # An environment may also call `sys.exit`.
            self.found.error = f"{self._call} raised {typed_line(error)}{place_of(error)}"
        return self.found

    def _run(self) -> None:
        before = held()
        world = self._open()
        if world is None:
            return
        for part in (self._begin, self._play, self._repeat, self._stand_still, self._close):
            part(world)
        self.found.closed = leftovers(self._clock, before)
        again = self._open()
        if again is None:
            return
        if self.found.repeats:
            self.found.repeats_afresh = self._episode(again) == self._remembered
        self._close(again)
        self.found.closed_again = leftovers(self._clock, before, self.found.closed)

    def _open(self) -> World | None:
        self._limit_s = MAKING_S
        self._next("making the environment", self.found)
        job = self._job
        try:
            config = parse_config({"env": _settings(job)}).env
            make_env = job.make_env
            made = make(config) if isinstance(make_env, str) else make_env(**job.kwargs)
            env = Watched(made)
            adapter = Adapter(env, config)
            default = DefaultBehaviour(config, adapter)
        except UserError as error:
            self.found.refusal = str(error)
            return None
        self.found.rate_hz, self.found.sight = adapter.rate_hz, adapter.sight
        self.found.max_catch_up_ticks = config.max_catch_up_ticks
        self.found.nondeterministic = bool(env.spec and env.spec.nondeterministic)
        self._faults = adapter.faults
        self._limit_s = SILENCE_S + 2.0 / adapter.rate_hz
        adapter.keep_time()
        return World(env, adapter, default)

    def _begin(self, world: World) -> None:
        self._reset(world, self._job.seed)
        for _ in range(RESETS):
            self._reset(world)

    def _play(self, world: World) -> None:
        """Take random actions on the wall clock."""
        self._next("stepping", self.found)
        clock, found, period = self._clock, self.found, 1.0 / world.adapter.rate_hz
        actions = self._actions(world)
        most = min(max(FEWEST_STEPS, math.ceil(self._job.seconds / period)), MOST_STEPS)
        due, end, length = clock.now(), clock.now() + self._job.seconds, 0
        while len(found.steps_s) < most and (
            clock.now() < end or len(found.steps_s) < FEWEST_STEPS
        ):
            if due > clock.now():
                # Without this the wait would count as the last call's, whose limit may be shorter.
                self._announce("waiting for a tick", MAKING_S + period, None)
                clock.sleep_until(due)
                found.late_s.append(clock.now() - due)
            action = world.adapter.actions.accept(actions.sample())
            began = clock.now()
            step = self._step(world, action, began)
            length += 1
            if _over(step):
                found.ended.append(length)
                length = 0
                self._reset(world)
            due = max(due + period, clock.now())

    def _repeat(self, world: World) -> None:
        """Play the same episode twice."""
        self._next("repeating an episode", self.found)
        if not self.found.nondeterministic:
            self._remembered = self._episode(world)
            self.found.repeats = self._episode(world) == self._remembered

    def _episode(self, world: World) -> list[bytes]:
        """Digests of everything that an episode of a fixed seed and fixed actions returned."""
        self._reset(world, self._job.seed)
        actions = self._actions(world)
        shown = [digest(world.env.seen)]
        for _ in range(REPEATED_STEPS):
            step = self._step(world, world.adapter.actions.accept(actions.sample()))
            shown.append(digest(world.env.seen))
            if _over(step):
                break
        return shown

    def _actions(self, world: World) -> gym.Space[Any]:
        """The action space, seeded; an environment may make another each time it is asked."""
        space: gym.Space[Any] = world.env.action_space
        space.seed(self._job.seed)
        return space

    def _stand_still(self, world: World) -> None:
        """Take the default behaviour alone."""
        self._next("doing nothing", self.found)
        adapter, found = world.adapter, self.found
        frame = self._reset(world, self._job.seed)
        before, words, noop = adapter.faults, adapter.action_meanings, adapter.noop_action
        chosen = self._job.settings.get("default_action", "noop")
        found.noop = f"action {np.asarray(adapter.actions.for_environment(noop)).tolist()}"
        if words and isinstance(noop, int):
            found.noop += f" ({words[noop]})"
        if chosen != "noop":
            found.noop = f"env.default_action = {chosen}"
        last: Action | None = None
        for _ in range(NOOP_STEPS):
            self._next("the default behaviour")
            last = world.default.action(frame, last)
            step = self._step(world, last)
            frame = frame if step is None else step.frame
            found.noop_ticks += 1
            found.noop_return += 0.0 if step is None else step.reward
            if _over(step):
                found.noop_ended = True
                break
        found.noop_faults = adapter.faults - before
        named = noop_action(world.env) is not None
        found.noop_declared = named or "NOOP" in map(str.upper, words) or chosen != "noop"

    def _close(self, world: World) -> None:
        self._next("close()", self.found)
        world.env.close()
        # `leftovers` waits, too, and not at the expense of close().
        self._next(LOOKING)

    def _reset(self, world: World, seed: int | None = None) -> NDArray[Any]:
        """Begin an episode; returns its first frame, zeros if that did not fit the spaces."""
        self._next("reset()")
        began, fault = self._clock.now(), None
        frame: NDArray[Any] = np.zeros(world.adapter.frame_shape, world.adapter.frame_dtype)
        try:
            frame = world.adapter.reset(seed)
        except EnvironmentFault as error:
            fault = error
        # The daemon seeds once, before its clock starts.
        if seed is None:
            self.found.resets_s.append(self._clock.now() - began)
        self._note(world, fault)
        return frame

    def _step(self, world: World, action: Any, began: float | None = None) -> Step | None:
        """One step, timed from `began` if given; None if it did not fit the spaces."""
        self._next("step()")
        step, fault = None, None
        try:
            step = world.adapter.step(action)
        except EnvironmentFault as error:
            fault = error
        if began is not None:
            self.found.steps_s.append(self._clock.now() - began)
        self._note(world, fault)
        return step

    def _note(self, world: World, fault: EnvironmentFault | None) -> None:
        """Inspect what was returned; note a fault in its own words if it has no other."""
        found, faults = self.found, self._faults
        others, rewards = found.spaces.total(), found.rewards.total()
        not_finite = found.spaces[NOT_FINITE]
        inspect(world.env, found)
        self._faults = world.adapter.faults
        if found.rewards.total() > rewards or found.spaces[NOT_FINITE] > not_finite:
            return
        if isinstance(fault, NotFinite) or self._faults > faults:
            # Infinity may be within the bounds of a space, and NaN in an array of a wrong type.
            found.spaces[NOT_FINITE] += 1
        elif fault is not None and found.spaces.total() == others:
            found.spaces[str(fault)] += 1

    def _next(self, call: str, found: Findings | None = None) -> None:
        self._call = call
        self._announce(call, self._limits.get(call, self._limit_s), found)


def _settings(job: Job) -> dict[str, Any]:
    """The section `env` of a configuration with the job's environment."""
    settings = dict(job.settings)
    if isinstance(job.make_env, str):
        settings |= {"id": job.make_env, "kwargs": job.kwargs}
    if job.rate_hz is not None:
        settings["rate_hz"] = job.rate_hz
    return settings


def main(descriptor: int, parent: int) -> None:
    """Body of the process: receive the job, tell what comes next, send the findings."""
    die_with_parent(parent)
    sharpen_timers()
    pipe = Connection(descriptor)
    job: Job = pipe.recv()
    np.seterr(all="ignore")
    found = Trial(job, lambda *news: pipe.send(news), MonotonicClock()).run()
    pipe.send(("", 0.0, found))
    # An environment's threads must not hold it back.
    os._exit(0)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
