"""Updates per second of a network on a GPU, by a learner that is alone and by plain torch.

Our side is a learner's whole update: a second thread sends batches, the GPU computes the gradient
and steps, every tenth update is stored in the host's memory and published. It runs in float32 and
in the precision that is the fastest here, which is what `learning.precision = "auto"` takes. Plain
torch keeps everything on the GPU, its batch too, in float32 with its own choice of kernels (its
convolutions use TF32, as ours do). Rounds of all sides alternate.

    rtagent bench gpu_update [--device cuda] [--width 29] [--batch 64] [--rounds 8] [--json]
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from statistics import median
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor

from benchmarks.command import command_line
from benchmarks.learning.dqn_sides import NaiveUpdate, random_batch
from rtagent import load_config
from rtagent.cli.output import print_json
from rtagent.config import LearningConfig, PolicyConfig, Precision
from rtagent.learning.device import Device
from rtagent.learning.replay.batch import Batch
from rtagent.learning.shared_update import SharedUpdate
from rtagent.policy import networks

SPACE = spaces.Box(0, 255, (4, 84, 84), np.uint8)


def network_of(width: int) -> torch.nn.Module:
    """The resnet, with the same weights each time."""
    torch.manual_seed(0)
    return networks.build(PolicyConfig(network="resnet", width=width), SPACE, spaces.Discrete(6))


def measure(device: Device, width: int, count: int, rounds: int) -> dict[str, Any]:
    """Updates per second of all sides, medians of the rounds; and the precision that is chosen."""
    learning = LearningConfig(precision="float32")
    batch = random_batch(count)
    if device.device.type != "cpu":
        # In memory that the GPU copies from, as a learner's are.
        batch = with_tensors(batch, Tensor.pin_memory)
    ours = SharedUpdate.private(network_of(width), learning, device=device)
    ours.refresh()
    chosen = ours.measure_precisions(random_batch, count, lambda: None).chosen
    plain = NaiveUpdate(network_of(width).to(device.device), learning, foreach=None)
    there = with_tensors(batch, lambda each: each.to(device.device))

    with ThreadPoolExecutor(1) as sender:
        ahead = [sender.submit(device.send, batch)]

        def step_ours(precision: Precision) -> None:
            sent = ahead.pop().result()
            ahead.append(sender.submit(device.send, batch))
            ours.algorithm.precision = precision
            ours.step(sent)

        sides: dict[str, Callable[[], object]] = {
            "plain": lambda: plain.step(there), "float32": partial(step_ours, "float32"),
            "auto": partial(step_ours, chosen),
        }
        spent: dict[str, list[float]] = {side: [] for side in sides}
        for turn in range(rounds + 1):
            for side, step in sides.items():
                began = device.now()
                for _ in range(learning.publish_every):
                    step()
                if turn:  # The first round warms up.
                    spent[side].append((device.now() - began) / learning.publish_every)
    return {"precision": chosen, **{f"{side}_per_s": 1 / median(spent[side]) for side in sides}}


def with_tensors(batch: Batch, change: Callable[[Tensor], Tensor]) -> Batch:
    """The batch with each of its tensors changed."""
    changed: dict[str, Any] = {name: change(each) for name, each in batch.tensors.items()}
    return replace(batch, **changed)


def name_of(device: Device) -> str:
    """The device as its maker calls it."""
    if device.device.type == "cpu":
        return "the processor"
    return torch.cuda.get_device_name(device.device)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print; exit code 2 if there is no such device."""
    parser = command_line(__doc__)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--width", type=int, default=29)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=8)
    options = parser.parse_args(arguments)
    config = load_config(overrides=[f"learning.device={options.device}"])
    device = Device.of(config.learning)
    found = measure(device, options.width, options.batch, options.rounds)
    if options.json:
        print_json({"device": name_of(device), **found})
        return 0
    plain = found["plain_per_s"]
    print(f"resnet k={options.width}, B={options.batch} on {name_of(device)}; "
          f"plain torch: {plain:.1f} updates/s")
    for name, side in (("float32", "float32"), (f"auto ({found['precision']})", "auto")):
        rate = found[f"{side}_per_s"]
        print(f"  ours, {name}: {rate:.1f} updates/s, {rate / plain:.2f} times")
    return 0


if __name__ == "__main__":
    sys.exit(main())
