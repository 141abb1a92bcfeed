"""Fills the rings with demonstrations before the world starts, so that learning can begin at once.

A demonstrated action counts as computed from the frame that was seen some ticks before it was
executed: as many as will lie between the policy's own observations and actions. So what is learned
is the value of an action at the delay at which the policy acts, whatever the player reacted to.
Where a player decides at every n-th tick alone, the ticks in between count as the default
behaviour, as they do where a policy acts so seldom.

Why it is correct. Nothing else runs yet, so this process may write what belongs to the environment,
and does so as the environment does, row by row. The first ticks of an episode, whose frame would be
of the episode before, count as the default behaviour. Episodes are numbered anew over all files,
and the environment closes the last one as it does with a predecessor's.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from rtagent.config import Config
from rtagent.errors import UserError
from rtagent.memory.blueprint import Blueprint
from rtagent.memory.frames import FrameRing
from rtagent.memory.ledger import Ledger
from rtagent.memory.pending import PendingActions
from rtagent.memory.ring import GUARD_TICKS
from rtagent.staggering.adaptive import MARGIN
from rtagent.staggering.arbiter import Source
from rtagent.storage.demonstration_file import (
    SUFFIX,
    Demonstration,
    Outline,
    load_demonstration,
    outline_of,
)

PIECE_TICKS = 1024
"""Ticks that are written between two reports of progress."""


@dataclass(frozen=True)
class Demonstrations:
    """Files that fit a run, in the order in which their ticks are numbered.

    Attributes:
        source: the file or folder that the user named.
        files: ordered by name.
        outlines: of each file when it was found.
    """

    source: Path
    files: tuple[Path, ...]
    outlines: tuple[Outline, ...]

    @property
    def newest(self) -> int:
        """Number of the last tick."""
        return sum(outline.ticks for outline in self.outlines) - 1


def delay_ticks(config: Config, blueprint: Blueprint) -> int:
    """Ticks from the frame that a demonstrated action is learned for to its execution."""
    delay = config.learning.demonstration_delay
    if delay != "auto":
        return delay
    latency = config.inference.injected_latency_ms / 1e3 / blueprint.tick_seconds
    # What adaptive staggering promises while every inference takes the same time.
    return math.ceil(latency + MARGIN)


def find_demonstrations(source: Path, config: Config, blueprint: Blueprint) -> Demonstrations:
    """The demonstrations of a run, without their content.

    Args:
        source: a file, or a folder with files that end in `.demo`.

    Raises:
        UserError: there are none, or one does not fit; the line names both sides.
    """
    source = source.expanduser()
    files = tuple(sorted(source.glob(f"*{SUFFIX}"))) if source.is_dir() else (source,)
    if not files:
        raise UserError(f"learning.demonstrations = {source}: no file there ends in {SUFFIX}")
    outlines = tuple(outline_of(path) for path in files)
    wanted = Outline(
        config.env.id, 0, blueprint.frame_shape, blueprint.frame_dtype, blueprint.action_shape,
        blueprint.action_dtype, blueprint.action_meanings, blueprint.cartridge,
    )
    for path, outline in zip(files, outlines, strict=True):
        _check_fit(path, outline, wanted)
    return Demonstrations(source, files, outlines)


def load(
    past: Demonstrations, blueprint: Blueprint, frames: FrameRing, ledger: Ledger, *, delay: int,
    time_ns: int, interval: int = 1, keep: int = sys.maxsize,
    progress: Callable[[float], None] = lambda done: None,
) -> int:
    """Fill empty rings with the newest ticks that fit.

    Args:
        past: the demonstrations.
        frames, ledger: the rings, empty.
        delay: ticks from the frame that an action is learned for to its execution.
        time_ns: of every row, monotonic.
        interval: ticks from one decision of the player to the next.
        keep: most ticks; at most as many as the rings can show are written.
        progress: told the fraction that is done.

    Returns:
        How many ticks were written.

    Raises:
        UserError: a file is damaged, or has changed since it was found; or no action in them counts
            as computed from a frame of its episode, so that nothing could be learned.
    """
    stop = past.newest + 1
    lowest = max(0, stop - min(keep, frames.capacity - GUARD_TICKS))
    ends = list(accumulate(outline.ticks for outline in past.outlines))
    episode, decides = 0, stop == lowest
    for path, outline, end in zip(past.files, past.outlines, ends, strict=True):
        if end <= lowest:
            continue
        demonstration = load_demonstration(path)
        if demonstration.outline != outline:
            raise UserError(f"the demonstration {path} has changed since it was found")
        fitting = _fitting(path, demonstration, blueprint)
        rows = _Rows(fitting, end - outline.ticks, delay, interval, episode)
        for first in range(max(lowest, rows.first), end, PIECE_TICKS):
            rows.write(first, min(first + PIECE_TICKS, end), frames, ledger, time_ns)
            progress((first - lowest) / (stop - lowest))
        episode, decides = rows.next_episode, decides or rows.decides
    if not decides:
        raise UserError(
            f"no decision in {past.source}: its episodes are too short for "
            f"learning.demonstration_delay = {delay} and demonstration_interval = {interval}"
        )
    for ring in (frames, ledger):
        ring.begin(past.newest, lowest)
    return stop - lowest


class _Rows:
    """The ticks of one demonstration as the rings take them.

    Args:
        demonstration: the ticks.
        first: number of the first one.
        delay: ticks from the frame that an action is learned for to its execution.
        interval: ticks from one decision of the player to the next.
        episode: number of the first episode.

    Attributes:
        decides: whether any tick counts as a decision.
    """

    def __init__(
        self, demonstration: Demonstration, first: int, delay: int, interval: int, episode: int
    ) -> None:
        numbers = demonstration.episodes
        self.first = first
        self._demonstration = demonstration
        self._starts = first + np.searchsorted(numbers, numbers)
        ticks = first + np.arange(len(numbers))
        self._observed = ticks - delay
        # Nothing is decided for the reset, which is the first row of an episode.
        decided = (ticks - self._starts - 1) % interval == 0
        self._known = decided & (self._observed >= self._starts)
        self.decides = bool(self._known.any())
        self._episodes = episode + np.unique(numbers, return_inverse=True)[1]
        self.next_episode = int(self._episodes[-1]) + 1

    def write(self, start: int, stop: int, frames: FrameRing, ledger: Ledger, time_ns: int) -> None:
        """Write ticks start <= k < stop."""
        demonstration = self._demonstration
        for tick in range(start, stop):
            at = tick - self.first
            begin, observed = int(self._starts[at]), int(self._observed[at])
            known = bool(self._known[at])
            ledger.write(
                tick, observed=observed if known else -1, time_ns=time_ns,
                registered_ns=time_ns if known else 0, lateness_ns=0,
                reward=float(demonstration.rewards[at]), weights_version=-1,
                episode=int(self._episodes[at]), worker=-1,
                source=Source.AGENT if known else Source.DEFAULT,
                flags=int(demonstration.flags[at]), action=demonstration.actions[at],
                pending=self._pending(ledger.pending, observed, tick) if known else None,
            )
            frames.publish(tick, demonstration.frames[at], begin)

    def _pending(
        self, pending: PendingActions | None, observed: int, tick: int
    ) -> npt.NDArray[Any] | None:
        """The actions between the frame and this action; None in a run without pending actions."""
        if pending is None:
            return None
        actions = pending.unknown()
        first = observed + 1 - self.first
        between = self._demonstration.actions[first : tick - self.first][: len(actions)]
        actions[: len(between)] = between
        return actions


def _check_fit(path: Path, theirs: Outline, wanted: Outline) -> None:
    """Raise a UserError unless all but the length agree; what one does not know fits."""
    pairs: list[tuple[str, str, str]] = [
        ("environment", theirs.environment, wanted.environment),
        ("frames", _text(theirs.frame_shape, theirs.frame_dtype),
         _text(wanted.frame_shape, wanted.frame_dtype)),
        ("actions", _text(theirs.action_shape, theirs.action_dtype),
         _text(wanted.action_shape, wanted.action_dtype)),
    ]
    if theirs.action_meanings and wanted.action_meanings:
        has, needs = (" ".join(each.action_meanings) for each in (theirs, wanted))
        pairs.append(("actions", has, needs))
    if theirs.cartridge and wanted.cartridge:
        pairs.append(("cartridge", theirs.cartridge, wanted.cartridge))
    for what, has, needs in pairs:
        if has != needs:
            raise UserError(
                f"the demonstration {path} fits the {what} {has}, not {needs}; record another with "
                "this configuration, or leave learning.demonstrations out"
            )


def _text(shape: tuple[int, ...], dtype: str) -> str:
    return f"{'x'.join(map(str, shape))} {dtype}".strip()


def _fitting(path: Path, demonstration: Demonstration, blueprint: Blueprint) -> Demonstration:
    """The demonstration with its actions clipped to the bounds, as they were executed."""
    space, actions = blueprint.action_space, demonstration.actions
    if blueprint.action_shape:
        return replace(demonstration, actions=np.clip(actions, space.low, space.high))
    if actions.max() >= space.n:
        raise UserError(
            f"the demonstration {path} has the action {actions.max()}, and the environment's go "
            f"from 0 to {int(space.n) - 1}"
        )
    return demonstration
