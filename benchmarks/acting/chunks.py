"""Action chunks: ticks without an action, with too few processes for single actions.

Two processes act; an inference takes 8 ticks, and 1 % of them take 10 times as long.
Each inference answers with one action, or with a chunk of the actions of 10 ticks. The first runs
are in virtual time: also one in which a process is killed in the middle and does not come back, and
one with a third process. Then the same runs in the whole daemon, where inference times are padded
to that value, and a killed process is started again. Figures are counted from the executed ticks.

Each process is in a long inference for 9.2 % of the time, so both are for 0.84 %. A chunk covers
only the beginning of that time, so two processes that wait for the inference that they have begun
cannot come below the rest of it. A process that asks a policy server need not wait: in the last
runs the policy is behind `rtagent policy-server`, without and with hedged requests
(`policy.remote_hedge`).

    rtagent bench chunks [--seconds S] [--virtual] [--json]
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterable
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor, nn

from benchmarks.acting.remote import Server
from benchmarks.command import at_least, command_line
from benchmarks.runs import acting_run, rows_of
from rtagent.cli.output import print_json
from rtagent.config import GAME_BOY_HZ
from rtagent.staggering.arbiter import Source
from rtagent.staggering.inference_times import outliers
from rtagent.staggering.simulator import Event, Kill, SimulationConfig, simulate

PROCESSES, INFERENCE_TICKS, OUTLIERS, CHUNK = 2, 8.0, 0.01, 10
VIRTUAL_S = 1800.0
HEDGE = 1.5
SERVED_TIMES = 4.0
"""These runs are longer by this factor, because they count rare ticks."""
WARM_UP_S = 20.0
"""Until a long inference among the first no longer decides which delay is promised."""
MOST_INACTION_PERCENT = 0.1


class Constant(nn.Module):
    """Prefers the last action at every position of a chunk.

    Args:
        actions: number of actions.
        length: of the chunk; with 1, single actions.
    """

    def __init__(self, actions: int, length: int) -> None:
        super().__init__()
        values = torch.arange(actions, dtype=torch.float32)
        self.values = nn.Parameter(values if length == 1 else values.repeat(length, 1))

    def forward(self, observations: Tensor) -> Tensor:
        """(B, ...) to (B, actions), or to (B, length, actions)."""
        return self.values.expand(len(observations), *self.values.shape)


class Straggling(Constant):
    """Answers with chunks, and sleeps for as long as an inference is to take."""

    def __init__(self, actions: int) -> None:
        super().__init__(actions, CHUNK)
        self._rng = np.random.default_rng(0)

    def forward(self, observations: Tensor) -> Tensor:
        """(B, ...) to (B, CHUNK, actions)."""
        share, factor = outliers(OUTLIERS)
        late = factor if self._rng.random() < share else 1.0
        time.sleep(late * INFERENCE_TICKS / GAME_BOY_HZ)
        return super().forward(observations)


def straggling(observations: spaces.Box, actions: spaces.Discrete) -> nn.Module:
    """The network of the policy server."""
    return Straggling(int(actions.n))


def single(observations: spaces.Box, actions: spaces.Discrete) -> nn.Module:
    """A network for `policy.factory` that answers with single actions."""
    return Constant(int(actions.n), 1)


def chunks(observations: spaces.Box, actions: spaces.Discrete) -> nn.Module:
    """A network for `policy.factory` that answers with chunks."""
    return Constant(int(actions.n), CHUNK)


def in_virtual_time(
    name: str, chunk: int, events: tuple[Event, ...] = (), processes: int = PROCESSES
) -> dict[str, Any]:
    """The second half of a simulated run."""
    config = SimulationConfig(
        processes=processes, inference_ticks=INFERENCE_TICKS, distribution="outliers",
        spread=OUTLIERS, seconds=VIRTUAL_S, chunk=chunk, events=events,
    )
    half = [
        (each.source, each.delay, each.position)
        for each in simulate(config, np.random.default_rng(0)).ticks if each.at >= VIRTUAL_S / 2.0
    ]
    return summary(name, processes, chunk, half)


def live(
    name: str, chunk: int, seconds: float, kill: bool = False, processes: int = PROCESSES
) -> dict[str, Any]:
    """A run of the daemon that computes itself, padded to the inference time."""
    factory = "single" if chunk == 1 else "chunks"
    return recorded(name, processes, chunk, seconds, kill, [
        f"policy.factory=benchmarks.acting.chunks:{factory}",
        f"inference.injected_latency_ms={INFERENCE_TICKS * 1e3 / GAME_BOY_HZ}",
        "inference.injected_latency_distribution=outliers",
        f"inference.injected_latency_spread={OUTLIERS}",
    ])


def served(name: str, seconds: float, hedge: float | None) -> dict[str, Any]:
    """A run of the daemon that asks a policy server for chunks."""
    server = Server("benchmarks.acting.chunks:straggling")
    try:
        server.start()
        return recorded(name, PROCESSES, CHUNK, seconds, False, [
            f"policy.remote=ws://127.0.0.1:{server.port}", "policy.chunk_start=promised",
            *([] if hedge is None else [f"policy.remote_hedge={hedge}"]),
        ])
    finally:
        server.kill()


def recorded(
    name: str, processes: int, chunk: int, seconds: float, kill: bool, settings: list[str]
) -> dict[str, Any]:
    """A run of the daemon on the wall clock; with `kill`, one inference process is killed."""
    with acting_run(
        "learning.processes=0", "replay.capacity=20000", f"inference.processes={processes}",
        *settings,
    ) as runtime:
        time.sleep(WARM_UP_S)
        if kill:
            os.kill(runtime.world.metrics.inference[processes - 1].pid, signal.SIGKILL)
        rows = rows_of(runtime, seconds)
    delays = rows["tick"] - rows["observed"]
    ticks = zip(rows["source"].tolist(), delays.tolist(), rows["position"].tolist(), strict=True)
    return summary(name, processes, chunk, ticks)


def summary(
    name: str, processes: int, chunk: int, ticks: Iterable[tuple[int, int, int]]
) -> dict[str, Any]:
    """The figures of executed ticks.

    Args:
        name: of the run.
        processes: number of inference processes.
        chunk: actions of an inference.
        ticks: source, delay and position in its chunk of each tick's action.
    """
    table = np.array(list(ticks))
    sources, delays, positions = table.T
    acted = sources != Source.DEFAULT
    return {
        "run": name, "processes": processes, "chunk": chunk, "ticks": len(table),
        "inaction_percent": 100.0 * float((~acted).mean()),
        "strict_inaction_percent": 100.0 * float((sources != Source.AGENT).mean()),
        "delay_mean": float(delays[acted].mean()),
        "delay_p99": float(np.percentile(delays[acted], 99)),
        "from_chunk_percent": 100.0 * float((positions > 0).mean()),
    }


def main() -> int:
    """Print the figures; exit code 1 if a run that can stay below the limit does not."""
    parser = command_line(__doc__)
    parser.add_argument("--seconds", type=at_least(1.0), default=30.0, help="of each live run")
    parser.add_argument("--virtual", action="store_true", help="only in virtual time")
    args = parser.parse_args()
    dead = (Kill(VIRTUAL_S / 2.0, PROCESSES - 1),)
    found = [
        in_virtual_time("virtual", 1), in_virtual_time("virtual", CHUNK),
        in_virtual_time("virtual, one dead", 1, dead),
        in_virtual_time("virtual, one dead", CHUNK, dead),
        in_virtual_time("virtual", CHUNK, processes=PROCESSES + 1),
    ]
    if not args.virtual:
        found += [
            live("live", 1, args.seconds), live("live", CHUNK, args.seconds),
            live("live, one killed", 1, args.seconds, kill=True),
            live("live, one killed", CHUNK, args.seconds, kill=True),
            live("live", CHUNK, args.seconds, processes=PROCESSES + 1),
            served("served", SERVED_TIMES * args.seconds, None),
            served("served, hedged", SERVED_TIMES * args.seconds, HEDGE),
        ]
    if args.json:
        print_json(found)
    else:
        print(f"{'':18} {'N':>2} {'H':>3} {'inaction':>10} {'no new action':>14} "
              f"{'delay, mean':>12} {'delay, p99':>11} {'from chunks':>12}")
        for each in found:
            print(
                f"{each['run']:18} {each['processes']:2} {each['chunk']:3} "
                f"{each['inaction_percent']:8.3f} % "
                f"{each['strict_inaction_percent']:12.2f} % {each['delay_mean']:12.2f} "
                f"{each['delay_p99']:11.0f} {each['from_chunk_percent']:10.1f} %"
            )
    judged = found[4:5] if args.virtual else [found[4], found[-1]]
    return int(any(each["inaction_percent"] > MOST_INACTION_PERCENT for each in judged))


if __name__ == "__main__":
    raise SystemExit(main())
