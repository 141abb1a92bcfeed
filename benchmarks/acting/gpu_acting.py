"""A large network that acts on a GPU: inference times and inaction, by the number of processes.

The whole daemon plays the built-in game on the wall clock. Its inference processes compute on the
GPU, each with networks of its own, and nothing is learned unless `--learn` has a learner work on
the same GPU. Inaction and delay are recounted from the tick ledger; the number of processes is
changed while the daemon runs.

    rtagent bench gpu_acting [--device cuda] [--width 98] [--processes 1 2 3] [--seconds 10]
        [--learn] [--set KEY=VALUE] [--json]
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from benchmarks.command import at_least, command_line
from benchmarks.runs import acting_run, rows_of
from rtagent import Runtime, load_config
from rtagent.cli.output import known, print_json
from rtagent.policy.device import usable_device
from rtagent.staggering.arbiter import Source

BEGIN_S = 600.0
"""Longest time until the daemon acts: the largest network has a billion random weights."""
SETTLE_S = 5.0


def settings_of(device: str, width: int, learn: bool) -> list[str]:
    """The daemon's settings."""
    settings = [
        "run.tensorboard=false", "policy.network=resnet", f"policy.width={width}",
        f"policy.device={device}", "policy.engine=torch", "replay.capacity=20000",
        f"learning.processes={int(learn)}",
    ]
    if learn:
        settings += [f"learning.device={device}", "learning.learning_starts=200",
                     "learning.batch_size=64"]
    return settings


def measure(runtime: Runtime, processes: int, seconds: float) -> dict[str, Any]:
    """What the ledger says of some seconds with a number of processes."""
    runtime.set_inference(processes=processes)
    time.sleep(SETTLE_S)
    rows, stats = rows_of(runtime, seconds), runtime.stats()
    acted = rows["source"] == Source.AGENT
    delays = (rows["tick"] - rows["observed"])[acted]
    return {
        "processes": processes, "ticks": len(rows),
        "inaction": float((rows["source"] == Source.DEFAULT).mean()),
        "new_actions": float(acted.mean()),
        "delay_mean": float(delays.mean()) if len(delays) else None,
        "inference_ms": stats["inference"]["estimate_ms"],
        "updates_per_s": stats["learning"]["updates_per_s"],
        "lateness_p99_us": float(np.percentile(rows["lateness_ns"], 99)) / 1e3,
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print; exit code 2 if there is no such device."""
    parser = command_line(__doc__)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--width", type=int, default=98)
    parser.add_argument("--processes", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--seconds", type=at_least(0.5), default=10.0)
    parser.add_argument("--learn", action="store_true", help="learn on the same GPU meanwhile")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE")
    options = parser.parse_args(arguments)
    settings = settings_of(options.device, options.width, options.learn) + options.set
    usable_device(load_config(overrides=settings).policy.device, "--device")
    began = time.monotonic()
    with acting_run(*settings, limit_s=BEGIN_S) as runtime:
        begun_s = time.monotonic() - began
        results = [measure(runtime, each, options.seconds) for each in options.processes]
        parameters = runtime.world.blueprint.parameters
    if options.json:
        print_json({"parameters": parameters, "begun_s": begun_s, "runs": results})
        return 0
    print(f"resnet k={options.width}, {parameters:,} parameters, on {options.device}: acts after "
          f"{begun_s:.0f} s")
    for each in results:
        print(
            f"  {each['processes']} processes: inaction {each['inaction']:.2%} of "
            f"{each['ticks']} ticks, new actions {each['new_actions']:.2%}, delay "
            f"{known(each['delay_mean'], '{:.2f}')} ticks, inference "
            f"{known(each['inference_ms'], '{:.2f}')} ms, "
            f"{known(each['updates_per_s'], '{:.1f}')} updates/s"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
