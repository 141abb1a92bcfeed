"""An update in each precision, over networks and batch sizes: where does a lower one begin to pay?

The shape of AP-DRL's Table IV: for a small network a lower precision loses, for casting its weights
and inputs takes longer than its arithmetic saves; for a large one it wins, where the processor has
instructions for it. Measured is the learner's whole update (both passes, backward pass, Adam,
shared state), in processor time, so that what else runs here does not count; rounds of all
precisions alternate within one run. A precision that takes a small layer many times as long as
float32 is left out, as `learning.precision = "auto"` does.

    rtagent bench precision [--networks "mlp 64,64" nature] [--batches 16 64 256]
        [--rounds 5] [--json] [--quick]
"""

from __future__ import annotations

import sys
import time
from dataclasses import asdict, dataclass
from itertools import pairwise

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor, nn

from benchmarks.command import command_line
from benchmarks.learning.dqn_sides import random_batch
from rtagent.cli.output import print_json
from rtagent.config import LEARNING_PRECISIONS, LearningConfig, PolicyConfig, Precision
from rtagent.learning.precision import has_convolutions, is_usable
from rtagent.learning.shared_update import SharedUpdate
from rtagent.policy import networks
from rtagent.policy.architectures import PolicyModule
from rtagent.policy.heads import PLAIN
from rtagent.processes.freed_memory import keep_freed_memory

ACTIONS, FEATURES = 6, 4
IMAGES = spaces.Box(0, 255, (4, 84, 84), np.uint8)
HIDDEN = {"mlp 64,64": (64, 64), "mlp 400,300": (400, 300), "mlp 4096,3072": (4096, 3072)}
"""Of the paper's Table IV."""
NETWORKS = (*HIDDEN, "nature", "resnet k=1")
BATCHES = (16, 64, 256, 1024)
LONG_MS = 1500.0
"""If a batch takes float32 longer than this, larger batches are left out."""


class Layers(PolicyModule):
    """An MLP with hidden layers of these sizes, from `FEATURES` numbers to action values."""

    def __init__(self, hidden: tuple[int, ...]) -> None:
        super().__init__(1.0, image=False)
        *earlier, last = pairwise((FEATURES, *hidden))
        self.layers = nn.Sequential(*(
            each for sizes in earlier for each in (nn.Linear(*sizes), nn.ReLU())
        ))
        self.hidden = nn.Linear(*last)
        self.values = PLAIN.layer(hidden[-1], ACTIONS)

    def encode(self, observations: Tensor) -> Tensor:
        """(B, 1, FEATURES) to the input of the last hidden layer."""
        features: Tensor = self.layers(observations.flatten(1))
        return features


@dataclass(frozen=True)
class Row:
    """One network with one batch size: milliseconds of an update in each precision."""

    network: str
    batch_size: int
    ms: dict[Precision, float]

    def speedup(self, precision: Precision) -> float | None:
        """Against float32; None if it was left out."""
        ms = self.ms.get(precision)
        return None if ms is None else self.ms["float32"] / ms


def build(name: str) -> nn.Module:
    """A network by its name in `NETWORKS`."""
    torch.manual_seed(0)
    if name in HIDDEN:
        return Layers(HIDDEN[name])
    return networks.build(PolicyConfig(network=name.split()[0]), IMAGES, spaces.Discrete(ACTIONS))


def measure(name: str, batches: list[int], rounds: int) -> list[Row]:
    """Measure a network with each batch size."""
    network = build(name)
    convolves = has_convolutions(network)
    update = SharedUpdate.private(network, LearningConfig(precision="float32"))
    tried: list[Precision] = ["float32"]
    tried += [each for each in LEARNING_PRECISIONS[1:] if is_usable(each, convolves=convolves)]
    rows: list[Row] = []
    for count in batches:
        batch = random_batch(count, FEATURES if name in HIDDEN else None)
        times: dict[Precision, list[float]] = {each: [] for each in tried}
        for turn in range(rounds + 1):
            for precision, spent in times.items():
                update.algorithm.precision = precision
                began = time.process_time()
                update.step(batch)
                if turn:  # The first round warms up.
                    spent.append(1e3 * (time.process_time() - began))
        medians = {each: float(np.median(spent)) for each, spent in times.items()}
        rows.append(Row(name, count, medians))
        if medians["float32"] > LONG_MS:
            break
    return rows


def break_even(rows: list[Row], precision: Precision) -> int | None:
    """The smallest batch size from which on a precision beats float32. None if it never does."""
    found = None
    for row in sorted(rows, key=lambda each: each.batch_size, reverse=True):
        if (row.speedup(precision) or 0.0) <= 1.0:
            break
        found = row.batch_size
    return found


def report(rows: list[Row], *, as_json: bool) -> None:
    """Print the table, and from which batch size on each precision is faster than float32."""
    lower = LEARNING_PRECISIONS[1:]
    names = list(dict.fromkeys(row.network for row in rows))
    pays = {
        name: {each: break_even([row for row in rows if row.network == name], each)
               for each in lower}
        for name in names
    }
    if as_json:
        print_json({"rows": [asdict(row) for row in rows], "break_even": pays})
        return
    print(f"{'ms per update':15}{'batch':>6}{'float32':>10}"
          + "".join(f"{each:>11}{'speedup':>9}" for each in lower))
    for row in rows:
        cells = "".join(
            f"{row.ms[each]:11.2f}{row.speedup(each):8.2f}x" if each in row.ms
            else f"{'left out':>11}{'':9}" for each in lower
        )
        print(f"{row.network:15}{row.batch_size:6d}{row.ms['float32']:10.2f}{cells}")
    for name in names:
        said = "; ".join(
            f"{each} never" if count is None else f"{each} from {count} on"
            for each, count in pays[name].items()
        )
        print(f"{name}: faster than float32: {said}")


def main() -> int:
    """Measure and print."""
    parser = command_line(__doc__)
    parser.add_argument("--networks", nargs="+", choices=NETWORKS, default=list(NETWORKS))
    parser.add_argument("--batches", nargs="+", type=int, default=list(BATCHES))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--quick", action="store_true", help="two batch sizes, two rounds")
    options = parser.parse_args()
    if options.quick:
        options.batches, options.rounds = [16, 256], 2
    torch.set_num_threads(1)
    keep_freed_memory()
    rows = []
    for name in options.networks:
        rows += measure(name, sorted(options.batches), options.rounds)
        print(f"{name} measured", file=sys.stderr, flush=True)
    report(rows, as_json=options.json)
    return 0


if __name__ == "__main__":
    sys.exit(main())
