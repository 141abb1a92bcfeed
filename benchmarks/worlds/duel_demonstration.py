"""A demonstration of Duel by a scripted player that sees the game as late as the agent will.

Every episode is one encounter, drawn from all of them. The player keeps a key down until it sees
the effect; if it may decide only at every n-th tick, it presses the key for that tick. Now and then
a random key is pressed, so that the demonstration shows the effect of other actions as well.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from benchmarks.worlds.duel_players import DelayedView, fighter
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
        ticks: least length; the last episode is played to its end.
        delay: in ticks, from a frame that the player sees to its action.
        seed: of encounters and random keys.
        interval: ticks from one decision of the player to the next; in between it does nothing.

    Returns:
        Encounters won per minute of the demonstration.
    """
    rng = np.random.default_rng(seed)
    env = Duel()
    writer = DemonstrationWriter(ENVIRONMENT, tuple(env.get_action_meanings()))
    actions, won, episode = len(env.get_action_meanings()), 0, 0
    while writer.ticks < ticks:
        encounter = int(rng.integers(1, ENCOUNTERS + 1))
        frame, _ = env.reset(seed=int(rng.integers(2**31)), options={"encounter": encounter})
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
