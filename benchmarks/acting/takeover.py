"""What new weights cost the acting path: inference times with and without publications.

The real inference driver (adaptive staggering, claim lock, stacked observation, the policy's own
network) runs in its own process while frames come at 60 Hz, in three blocks: nothing is published;
new weights are published before every second frame, and prepared while the process waits; the
same, but taken over on the way to each inference, as if no time were idle. Latency is what the
driver puts in the metrics: all that is done for one action once its frame is there.

    rtagent bench takeover [--network nature|resnet] [--width K] [--frames N] [--json]
"""

from __future__ import annotations

import multiprocessing
import sys
import tempfile
import time
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from benchmarks.acting.registration import Ticks, begun, context_of
from benchmarks.command import command_line
from benchmarks.worlds.shapes import blueprint
from rtagent.cli.forward_time import takeover_times
from rtagent.cli.output import print_json
from rtagent.config_sources import load_config
from rtagent.inference.driver import Driver
from rtagent.inference.standby import Standby
from rtagent.inference.weights import Weights
from rtagent.memory.weights import WeightsInfo
from rtagent.memory.world import WorldHandles, WorldMemory
from rtagent.policy.acting import ActingPolicy
from rtagent.policy.networks import flattened, tensor_specs
from rtagent.processes.scheduling import sharpen_timers

FRAMES_PER_PUBLICATION = 2
SKIPPED = 30
BLOCKS = ("no publications", "prepared in waits", "on the way")


class OnTheWay(Weights):
    """Takes over all weights at the beginning of an inference, and none while the driver waits."""

    def prepare(self, until: float) -> None:
        """Do nothing."""

    def hurry(self, seconds: float) -> None:
        """Take over all weights."""
        self.take_over()


def drive(handles: WorldHandles, folder: str, kind: type[Weights]) -> None:
    """Body of the inference process."""
    torch.set_num_threads(1)
    sharpen_timers()
    context = context_of(handles, folder)
    policy = ActingPolicy.of(handles.config, handles.blueprint)
    standby = Standby(policy)
    standby.warm_up()
    weights = kind(context.world.weights, handles.blueprint.parameters, standby, context.clock)
    weights.take_over()
    context.record.ready = 1
    Driver(context, policy, weights).run()


def measure(config: Any, frames: int) -> dict[str, Any]:
    """Milliseconds: forward pass, whole takeover, and latencies of each block."""
    torch.set_num_threads(1)
    policy = ActingPolicy.of(config, blueprint())
    shapes = replace(blueprint(), tensors=tensor_specs(policy.module))
    values = flattened(policy.module)
    result: dict[str, Any] = {"parameters": shapes.parameters}
    result["latency_ms"] = {
        name: _block(config, shapes, values, frames, OnTheWay if name == BLOCKS[2] else Weights,
                     publishing=name != BLOCKS[0])
        for name in BLOCKS
    }
    policy.warm_up()
    result["forward_ms"] = _spread([_timed(policy.warm_up) / 3.0 for _ in range(30)])
    result["takeover_ms"] = _spread(1e3 * takeover_times(policy, shapes.parameters, 5.0))
    return result


def _block(
    config: Any, shapes: Any, values: np.ndarray, frames: int, kind: type[Weights],
    *, publishing: bool,
) -> dict[str, float]:
    context = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory() as folder:
        memory = WorldMemory(config, shapes)
        world = begun(memory, values)
        process = context.Process(target=drive, args=(memory.handles, folder, kind), daemon=True)
        process.start()
        try:
            record = world.metrics.inference[0]
            while not record.ready:
                if not process.is_alive():
                    raise RuntimeError("the inference process has died")
                time.sleep(0.05)
            ticks = Ticks()
            ticks.announce(world.metrics.environment, 0)
            since = 0
            for number in range(SKIPPED + frames):
                if number == SKIPPED:
                    since = time.monotonic_ns()
                if publishing and number % FRAMES_PER_PUBLICATION == 0:
                    world.weights.publish(values, WeightsInfo(number + 1, 0))
                ticks.wait()
                world.frames.publish(number, np.zeros(shapes.frame_shape, np.uint8), 0)
            latencies = record.registrations_since(since)["latency_ns"] / 1e6
            version = record.weights_version
        finally:
            process.kill()
            process.join()
            memory.close()
    return {**_spread(latencies), "inferences": len(latencies), "newest_version": version}


def _timed(call: Any) -> float:
    start = time.monotonic()
    call()
    return 1e3 * (time.monotonic() - start)


def _spread(milliseconds: Any) -> dict[str, float]:
    p50, p99 = np.percentile(milliseconds, (50, 99))
    return {"p50": float(p50), "p99": float(p99)}


def main() -> int:
    """Print the blocks side by side."""
    parser = command_line(__doc__)
    parser.add_argument("--network", choices=("nature", "resnet"), default="nature")
    parser.add_argument("--width", type=int, default=1)
    parser.add_argument("--frames", type=int, default=600)
    args = parser.parse_args()
    config = load_config(overrides=[
        "replay.capacity=4096", f"policy.network={args.network}", f"policy.width={args.width}",
    ])
    result = measure(config, args.frames)
    if args.json:
        print_json(result)
        return 0
    print(f"{result['parameters']:,} parameters; milliseconds, p50 and p99")
    rows = {"forward pass": result["forward_ms"], "whole takeover": result["takeover_ms"]}
    rows |= {f"latency, {name}": found for name, found in result["latency_ms"].items()}
    for name, found in rows.items():
        told = f"  version {found['newest_version']}" if "newest_version" in found else ""
        print(f"{name:34} {found['p50']:8.3f} {found['p99']:8.3f}{told}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
