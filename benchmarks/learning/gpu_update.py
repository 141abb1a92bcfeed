"""Updates per second of a large network on a GPU, by a learner and by plain torch.

Our side is a learner's whole update: a second thread sends batches, the GPU computes the gradient,
Adam updates the weights in the host's memory, and the new weights are sent back. Plain torch keeps
everything on the GPU, its batch too, with its own choice of kernels. Rounds of both alternate.
`copies` is the least time of our update: one gradient to the host, and the weights back. This
benchmark has not run on a GPU yet.

    rtagent bench gpu_update [--device cuda] [--width 29] [--batch 64] [--rounds 8] [--json]
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from statistics import median
from typing import Any

import numpy as np
import torch
from gymnasium import spaces

from benchmarks.command import command_line
from benchmarks.learning.dqn_sides import NaiveUpdate, random_batch
from rtagent.config import LearningConfig, PolicyConfig
from rtagent.errors import UserError
from rtagent.learning.device import Device
from rtagent.learning.shared_update import SharedUpdate
from rtagent.policy import networks

UPDATES_PER_ROUND = 5
SPACE = spaces.Box(0, 255, (4, 84, 84), np.uint8)


def network_of(width: int) -> torch.nn.Module:
    """The resnet, with the same weights each time."""
    torch.manual_seed(0)
    return networks.build(PolicyConfig(network="resnet", width=width), SPACE, spaces.Discrete(6))


def measure(device: Device, width: int, count: int, rounds: int) -> dict[str, float]:
    """Updates per second of both sides, medians of the rounds; milliseconds of the copies."""
    batch, learning = random_batch(count), LearningConfig(precision="float32")
    ours = SharedUpdate.private(network_of(width), learning, device=device)
    plain = NaiveUpdate(network_of(width).to(device.device), learning, foreach=None)
    gradient = torch.from_numpy(device.host_memory(ours.gradient.shape, np.float32)).zero_()
    computed = device.beside(gradient)

    tensors: dict[str, Any] = {
        name: each.to(device.device) for name, each in vars(batch).items()
        if isinstance(each, torch.Tensor)
    }
    there = replace(batch, **tensors)

    def copy() -> None:
        device.fetch(computed, gradient)
        device.upload(gradient.numpy())

    with ThreadPoolExecutor(1) as sender:
        ahead = [sender.submit(device.send, batch)]

        def step_ours() -> None:
            sent = ahead.pop().result()
            ahead.append(sender.submit(device.send, batch))
            ours.step(sent)

        sides: dict[str, Callable[[], object]] = {
            "ours": step_ours, "plain": lambda: plain.step(there), "copies": copy,
        }
        spent: dict[str, list[float]] = {side: [] for side in sides}
        for turn in range(rounds + 1):
            for side, step in sides.items():
                began = device.now()
                for _ in range(UPDATES_PER_ROUND):
                    step()
                if turn:  # The first round warms up.
                    spent[side].append((device.now() - began) / UPDATES_PER_ROUND)
    ours_s, plain_s, copies_s = (median(spent[side]) for side in sides)
    return {"ours_per_s": 1 / ours_s, "plain_per_s": 1 / plain_s, "ratio": plain_s / ours_s,
            "copies_ms": 1e3 * copies_s}


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print; exit code 1 if there is no such device."""
    parser = command_line(__doc__)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--width", type=int, default=29)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=8)
    options = parser.parse_args(arguments)
    try:
        device = Device.of(LearningConfig(device=options.device))
    except UserError as error:
        print(f"gpu_update: {error}", file=sys.stderr)
        return 1
    found = measure(device, options.width, options.batch, options.rounds)
    if options.json:
        print(json.dumps({"device": str(device.device), **found}, indent=2))
    else:
        print(f"resnet k={options.width}, B={options.batch} on {device.device}: "
              f"{found['ours_per_s']:.1f} updates/s, plain torch {found['plain_per_s']:.1f}: "
              f"{found['ratio']:.2f} times; copies {found['copies_ms']:.1f} ms of each of ours")
    return 0


if __name__ == "__main__":
    sys.exit(main())
