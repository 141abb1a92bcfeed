"""Bytes on the wire for each transition learned from: replay at the edge, and at the learner.

alpha is the number of transitions generated for each one learned from (S. Morishima and H.
Matsutani, doi:10.1109/ACCESS.2024.3402835, Sec. VI-A). A replay at the learner is sent everything
that is generated, a replay at the edge sends what was sampled, so the first needs alpha times what
the second needs, where both send whole experiences (two stacks of 84x84x4). Shown beside it is what
rtagent sends: each frame of a batch once, without and with a cache at the learner; and what a
replay at the learner would need if it were sent each frame once. Messages are made by the gateway's
own code out of a real ring, and their errors are drawn; there is no network and no learning.

    python -m benchmarks.cluster_bytes [--alpha 0.2 0.5 1 1.52 2 5 10] [--batches 400]
        [--capacity 16384] [--picture PATH] [--csv PATH] [--json]
"""

from __future__ import annotations

import argparse
import csv
import json
import sys
from pathlib import Path
from typing import NamedTuple

import numpy as np
from rich.console import Console
from rich.progress import track
from rich.table import Table

from benchmarks.registration import blueprint
from rtagent.cluster.buffer_node import BufferNode
from rtagent.cluster.message import Message
from rtagent.cluster.node import Settings
from rtagent.config_sources import load_config
from rtagent.learning.replay.replay import Replay
from rtagent.memory.ledger import TERMINATED
from rtagent.memory.world import World, WorldMemory
from rtagent.staggering.arbiter import Source

BATCH = 32
EPISODE = 1000
PICTURES = 64
PAPER_ALPHA = 1.52
LESS_AT_PAPER_ALPHA = 1.4
CACHED_SHARE = 0.5
WARM_UP = 100
"""Batches before the first that is counted. The cache goes on filling: its figures are high."""


class Line(NamedTuple):
    """Bytes for each transition learned from, at one alpha.

    Attributes:
        alpha: generated over learned from.
        edge: whole experiences, replay at the edge.
        learner: whole experiences, replay at the learner.
        edge_once: each frame of a batch once.
        edge_cached: and only those that the learner does not have.
        learner_once: every frame once, with its row, to a replay at the learner.
    """

    alpha: float
    edge: float
    learner: float
    edge_once: float
    edge_cached: float
    learner_once: float


class World84:
    """A ring of 84x84 frames that a test pattern fills, and a node that samples it."""

    def __init__(self, capacity: int, slots: int) -> None:
        settings = [
            f"replay.capacity={capacity}", "learning.learning_starts=1", "learning.n_step=3",
            "learning.discount=decisions", "learning.prioritized=true",
        ]
        self.config = load_config(overrides=settings)
        self._memory = WorldMemory(self.config, blueprint())
        self.world = World(self._memory.handles)
        replay = Replay(
            self.world.frames, self.world.ledger, self.config.learning, self.world.priorities
        )
        self._rng = np.random.default_rng(0)
        shape = self.world.frames.frames.shape[1:]
        self._pictures = self._rng.integers(0, 256, (PICTURES, *shape), np.uint8)
        self.node = BufferNode(replay, self.world.frames, slots, np.random.default_rng(1))
        self._tick, self._capacity = 0, capacity
        self.play(capacity)

    def play(self, ticks: int) -> None:
        """Generate transitions."""
        for tick in range(self._tick, self._tick + ticks):
            if tick % 32 == 0:
                self._memory.maintain(tick, self._capacity)
            self.world.ledger.write(
                tick, observed=tick - 1, time_ns=tick, registered_ns=tick, lateness_ns=7,
                reward=1.0, weights_version=3, episode=tick // EPISODE, worker=0,
                source=Source.AGENT, flags=TERMINATED * (tick % EPISODE == EPISODE - 1),
                action=tick % 3,
            )
            self.world.frames.publish(tick, self._pictures[tick % PICTURES], tick - tick % EPISODE)
        self._tick += ticks

    def bytes_of_a_batch(self) -> int:
        """Make a message, and take errors for it, of which few are large."""
        sent = self.node.make(BATCH, Settings(BATCH, 1e-4, 0.4))
        assert sent is not None, "the ring is full"
        errors = self._rng.lognormal(-2.0, 1.5, BATCH).astype(np.float32)
        self.node.answered(Message({"seq": sent.seq, "learned": BATCH}, {"errors": errors}))
        return len(sent.block)

    def close(self) -> None:
        """Give back the memory."""
        self.world.close()
        self._memory.close()


def per_transition(alpha: float, batches: int, capacity: int, slots: int) -> float:
    """Bytes that a node with so many slots at the learner sends for each transition."""
    world = World84(capacity, slots)
    try:
        total, owed = 0, 0.0
        for batch in range(WARM_UP + batches):
            owed += alpha * BATCH
            world.play(int(owed))
            owed -= int(owed)
            size = world.bytes_of_a_batch()
            total += size if batch >= WARM_UP else 0
        return total / (batches * BATCH)
    finally:
        world.close()


def measure(alphas: list[float], batches: int, capacity: int) -> list[Line]:
    """A line for each alpha."""
    shapes = blueprint()
    frame = shapes.frame_bytes
    # Action, reward, discount, end, weight and demonstration; its two stacks.
    whole = 8 + 4 + 4 + 1 + 4 + 1 + 2 * shapes.frame_stack * frame
    row = World84(256, 1024)
    once = frame + row.world.ledger.dtype.itemsize
    row.close()
    few = 2 * BATCH * 2 * shapes.frame_stack
    return [
        Line(
            alpha, whole, alpha * whole, per_transition(alpha, batches, capacity, few),
            per_transition(alpha, batches, capacity, capacity), alpha * once,
        )
        for alpha in track(alphas, "measuring", console=Console(stderr=True), transient=True)
    ]


def draw(lines: list[Line], path: Path) -> None:
    """Bytes against alpha."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(7, 4.5))
    alphas = [line.alpha for line in lines]
    for name, label, style in (
        ("learner", "replay at the learner, whole experiences (baseline)", "k--"),
        ("edge", "replay at the edge, whole experiences", "k-"),
        ("learner_once", "replay at the learner, each frame once", "C1--"),
        ("edge_once", "edge, each frame of a batch once", "C0-"),
        ("edge_cached", "edge, and only frames that the learner does not have", "C2-"),
    ):
        axes.plot(alphas, [getattr(line, name) / 1024 for line in lines], style, label=label)
    axes.axvline(PAPER_ALPHA, color="grey", linewidth=0.8)
    axes.set(xscale="log", yscale="log", xlabel="alpha: generated for each one learned from",
             ylabel="KiB for each transition learned from")
    axes.set_title("Bytes on the wire, 84x84x4, n-step 3, batches of 32")
    axes.legend(fontsize=8)
    axes.grid(alpha=0.3)
    figure.tight_layout()
    figure.savefig(path, dpi=120)
    pyplot.close(figure)


def verdict(lines: list[Line]) -> list[tuple[str, bool]]:
    """What is claimed, and whether it holds."""
    at_paper = min(lines, key=lambda line: abs(line.alpha - PAPER_ALPHA))
    less = at_paper.learner / at_paper.edge
    share = at_paper.edge_cached / at_paper.edge
    return [
        (f"alpha {at_paper.alpha:g}: edge {less:.2f} times less than learner, whole experiences "
         f"(wanted {LESS_AT_PAPER_ALPHA})", less >= LESS_AT_PAPER_ALPHA),
        (f"alpha {at_paper.alpha:g}: with frames once and the cache {share:.2f} of whole "
         f"experiences (wanted {CACHED_SHARE} or less)", share <= CACHED_SHARE),
    ]


def main() -> int:
    """Parse the command line, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--alpha", type=float, nargs="+", default=[0.2, 0.5, 1, 1.52, 2, 5, 10])
    parser.add_argument("--batches", type=int, default=400)
    parser.add_argument("--capacity", type=int, default=16_384)
    parser.add_argument("--picture", type=Path)
    parser.add_argument("--csv", type=Path)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    lines = measure(sorted(args.alpha), args.batches, args.capacity)
    claims = verdict(lines)
    if args.json:
        print(json.dumps({"lines": [line._asdict() for line in lines], "claims": claims}))
    else:
        table = Table("alpha", *(name.replace("_", " ") for name in Line._fields[1:]))
        for line in lines:
            table.add_row(f"{line.alpha:g}", *(f"{value:,.0f}" for value in line[1:]))
        Console().print(table)
        for claim, holds in claims:
            print(f"{claim}: {'holds' if holds else 'MISSED'}")
    if args.csv:
        with args.csv.open("w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(Line._fields)
            writer.writerows(lines)
    if args.picture:
        draw(lines, args.picture)
    return 0 if all(holds for _, holds in claims) else 1


if __name__ == "__main__":
    sys.exit(main())
