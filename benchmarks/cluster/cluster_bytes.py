"""Bytes on the wire for each transition learned from: replay at the edge, and at the learner.

alpha is the number of transitions generated for each one learned from (S. Morishima and H.
Matsutani, doi:10.1109/ACCESS.2024.3402835, Sec. VI-A). A replay at the learner is sent everything
that is generated, a replay at the edge sends what was sampled, so the first needs alpha times what
the second needs, where both send whole experiences (two stacks of 84x84x4), as the paper's do.
rtagent sends each frame once, in either architecture; the other columns show what both then need,
the edge without and with a cache at the learner. Both run through the gateway's and the learner's
own code (node, message, session, replay, answer), out of a real ring; a message of whole
experiences is packed by the same code. Errors are random: nothing is learned, and a function call
takes the place of the network. Bytes are those of both directions, without weights.

    rtagent bench cluster_bytes [--alpha 0.2 0.5 1 1.52 2 5 10] [--batches 400]
        [--capacity 8192] [--picture PATH] [--csv PATH] [--json]
"""

from __future__ import annotations

import csv
import sys
from pathlib import Path
from typing import NamedTuple

import numpy as np
from rich.progress import track

from benchmarks.command import command_line, new_file, new_picture
from benchmarks.worlds.pattern_world import PatternWorld
from benchmarks.worlds.shapes import blueprint
from rtagent.cli.output import plain_table, print_json, stderr, stdout
from rtagent.clock import VirtualClock
from rtagent.cluster.buffer_node import BufferNode
from rtagent.cluster.forwarding_node import ForwardingNode
from rtagent.cluster.message import pack, unpack
from rtagent.cluster.mirror import Mirror
from rtagent.cluster.node import Node, Settings
from rtagent.cluster.received_shares import COLUMNS, ReceivedShares
from rtagent.cluster.session import Session
from rtagent.config_sources import load_config
from rtagent.learning.replay.batch import empty_batch
from rtagent.learning.replay.replay import Replay

BATCH = 32
PAPER_ALPHA = 1.52
LESS_AT_PAPER_ALPHA = 1.4
CACHED_SHARE = 0.5
SETTINGS = Settings(BATCH, 1e-4, 0.4)


class Line(NamedTuple):
    """Bytes for each transition learned from, at one alpha.

    Attributes:
        alpha: generated over learned from.
        edge: whole experiences, replay at the edge.
        learner: whole experiences, replay at the learner.
        edge_once: replay at the edge, each frame of a batch once.
        edge_cached: the same, but only frames that the learner does not have.
        learner_once: replay at the learner, every tick once.
    """

    alpha: float
    edge: float
    learner: float
    edge_once: float
    edge_cached: float
    learner_once: float


class World84:
    """A ring of 84x84 frames that a test pattern fills, its node, and the learner's end.

    Args:
        capacity: of the ring.
        slots: frames that the learner keeps. If None, the replay is at the learner.
    """

    def __init__(self, capacity: int, slots: int | None) -> None:
        config = load_config(overrides=[
            f"replay.capacity={capacity}", "learning.learning_starts=1", "learning.n_step=3",
            "learning.discount=decisions", "learning.prioritized=true",
        ])
        shapes = blueprint()
        self._pattern = PatternWorld(config, shapes)
        self.play, world = self._pattern.play, self._pattern.world
        frames, ledger = world.frames, world.ledger
        self._rng = np.random.default_rng(0)
        self.node: Node = ForwardingNode(frames, ledger)
        source: ReceivedShares | Mirror = Mirror(config, shapes, VirtualClock())
        if slots is not None:
            replay = Replay(frames, ledger, config.learning, world.priorities)
            self.node = BufferNode(replay, frames, slots, np.random.default_rng(1))
            source = ReceivedShares(slots, shapes)
        self._session = Session(1, source, BATCH, SETTINGS.learning_rate, 0.0)

    def exchange(self, count: int) -> int:
        """Send a message, answer it with random errors of which few are large, take the answer.

        Args:
            count: transitions to be learned from. If 0, only new ticks are sent.

        Returns:
            Bytes of both directions; 0 if there was nothing to send.
        """
        sent = self.node.make(count, SETTINGS)
        if sent is None:
            return 0
        answer = self._session.offer(sent.block, 0.0)
        if self._session.queue:
            share = self._session.queue.popleft()
            assert share.draw() is not None, "the replay is full"
            errors = self._rng.lognormal(-2.0, 1.5, count).astype(np.float32)
            more, arrays = self._session.source.learned(errors)
            values = {"learned": count, "generated": 0, "loss": 0.1, "updates": 1, "seconds": 0.01}
            answer.set_result(pack({**values, **more, "seq": share.seq}, arrays))
        block = answer.result(0)
        self.node.answered(unpack(block))
        return len(sent.block) + len(block)

    def close(self) -> None:
        """Give back the memory."""
        self._pattern.close()


def per_transition(alpha: float, batches: int, capacity: int, slots: int | None) -> float:
    """Bytes for each transition learned from, once the ring has been filled anew."""
    world = World84(capacity, slots)
    try:
        for _ in range(capacity // BATCH):
            world.play(BATCH)
            world.exchange(0)
        total, owed, warm_up = 0, 0.0, round(capacity / (alpha * BATCH))
        for batch in range(warm_up + batches):
            owed += alpha * BATCH
            world.play(int(owed))
            owed -= int(owed)
            size = world.exchange(BATCH)
            total += size if batch >= warm_up else 0
        return total / (batches * BATCH)
    finally:
        world.close()


def whole_bytes() -> float:
    """Bytes of each experience of a batch whose experiences share no frame."""
    batch = empty_batch(blueprint(), BATCH)
    columns = (*COLUMNS, "observations", "next_observations")
    return len(pack({"seq": 1}, {name: getattr(batch, name).numpy() for name in columns})) / BATCH


def measure(alphas: list[float], batches: int, capacity: int) -> list[Line]:
    """A line for each alpha."""
    few, whole = 2 * BATCH * 2 * blueprint().frame_stack, whole_bytes()
    return [
        Line(
            alpha, whole, alpha * whole,
            per_transition(alpha, batches, capacity, few),
            per_transition(alpha, batches, capacity, capacity),
            per_transition(alpha, batches, capacity, None),
        )
        for alpha in track(alphas, "measuring", console=stderr(), transient=True)
    ]


def draw(lines: list[Line], path: Path) -> None:
    """Bytes against alpha."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 4.5))
    axes = figure.subplots()
    alphas = [line.alpha for line in lines]
    for name, label, style in (
        ("learner", "replay at the learner, whole experiences (baseline)", "k--"),
        ("edge", "replay at the edge, whole experiences", "k-"),
        ("learner_once", "replay at the learner, every tick once", "C1--"),
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


def verdict(lines: list[Line]) -> list[tuple[str, bool]]:
    """Each claim, and whether it holds."""
    at_paper = min(lines, key=lambda line: abs(line.alpha - PAPER_ALPHA))
    less = at_paper.learner / at_paper.edge
    share = at_paper.edge_cached / at_paper.edge
    return [
        (f"alpha {at_paper.alpha:g}: edge {less:.2f} times less than learner, whole experiences, "
         f"which is alpha by definition (wanted {LESS_AT_PAPER_ALPHA})",
         less >= LESS_AT_PAPER_ALPHA),
        (f"alpha {at_paper.alpha:g}: with frames once and the cache {share:.2f} of whole "
         f"experiences (wanted {CACHED_SHARE} or less)", share <= CACHED_SHARE),
    ]


def frames_once(lines: list[Line]) -> str:
    """How the two architectures compare where neither sends a frame twice."""
    return "each frame once, learner over edge with its cache: " + ", ".join(
        f"{line.learner_once / line.edge_cached:.2f} at alpha {line.alpha:g}" for line in lines
    )


def main() -> int:
    """Parse the command line, measure, print."""
    parser = command_line(__doc__)
    parser.add_argument("--alpha", type=float, nargs="+", default=[0.2, 0.5, 1, 1.52, 2, 5, 10])
    parser.add_argument("--batches", type=int, default=400)
    parser.add_argument("--capacity", type=int, default=8192)
    parser.add_argument("--picture", type=new_picture)
    parser.add_argument("--csv", type=new_file)
    args = parser.parse_args()
    lines = measure(sorted(args.alpha), args.batches, args.capacity)
    claims = verdict(lines)
    if args.json:
        print_json({"lines": [line._asdict() for line in lines], "claims": claims})
    else:
        stdout().print(plain_table(*(name.replace("_", " ") for name in Line._fields), rows=(
            (f"{line.alpha:g}", *(f"{value:,.0f}" for value in line[1:])) for line in lines
        )))
        for claim, holds in claims:
            print(f"{claim}: {'holds' if holds else 'MISSED'}")
        print(frames_once(lines))
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
