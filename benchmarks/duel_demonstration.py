"""A demonstration of Duel: a scripted player that sees what the agent will see, as late as it will.

Every episode is one encounter, drawn from all of them. The player keeps a key down until it sees
the effect, or, if it may decide at every n-th tick alone, presses it for that tick; now and then a
key is pressed at random, so that there is something to compare with.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from benchmarks.duel_players import DelayedView, fighter
from rtagent.env.gameboy.duel import ENCOUNTERS, Duel
from rtagent.memory.ledger import TERMINATED, TRUNCATED
from rtagent.storage.demonstration_file import DemonstrationWriter

ENVIRONMENT = "rtagent/Duel-v0"
RANDOM_KEYS = 0.03
"""Share of the decisions."""


def record(path: Path, ticks: int, delay: int, seed: int, interval: int = 1) -> float:
    """Play and write a demonstration.

    Args:
        path: of the file.
        ticks: its length, at least; the last episode is played to its end.
        delay: in ticks, from what the player sees to what it does.
        seed: decides encounters and random keys.
        interval: ticks from one decision of the player to the next; in between it does nothing.

    Returns:
        Encounters won per minute of it.
    """
    rng = np.random.default_rng(seed)
    env = Duel()
    writer = DemonstrationWriter(ENVIRONMENT, tuple(env.get_action_meanings()))
    actions, won, episode = len(env.get_action_meanings()), 0, 0
    while writer.ticks < ticks:
        encounter = int(rng.integers(1, ENCOUNTERS + 1))
        frame, _ = env.reset(
            seed=int(rng.integers(2**31)), options={"encounter": encounter}
        )
        writer.add(frame, env.noop_action, 0.0, 0, episode)
        view, over = DelayedView(env, delay), False
        view.look()
        begun = writer.ticks
        while not over:
            action = env.noop_action
            if (writer.ticks - begun) % interval == 0:
                action = fighter(view, writer.ticks)
                if rng.random() < RANDOM_KEYS:
                    action = int(rng.integers(actions))
            frame, reward, decided, truncated, _ = env.step(action)
            view.look()
            won += reward > 0.0
            over = decided or truncated
            flags = TERMINATED * decided | TRUNCATED * truncated
            writer.add(frame, action, reward, flags, episode)
        episode += 1
    env.close()
    writer.save(path)
    return won / (writer.ticks / env.rate_hz / 60.0)
