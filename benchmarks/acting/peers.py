"""Acting with inferences of 5 ticks: our shared memory, a Manager's dictionary, and policy servers.

An inference of exactly five ticks is a sleep on every side, so what differs is how frames and
actions travel, and that our processes ask for priority and exact timers where the peers, as they
come, do not. The sides take turns in one run; medians over the rounds, and ratios to ours.

- `ours`: the whole daemon, `adaptive` staggering, six inference processes, next to no computation.
- `manager`: frames and actions in a `multiprocessing.Manager` dictionary, as in the code of Riemer
  et al. (Realtime Reinforcement Learning); six processes on absolute slots, so their spacing is as
  even as ours.
- `policy server`: a plain asynchronous loop, written here after the pattern of LeRobot's. A server
  takes the newest observation and answers with a chunk of actions for the ticks to come. The client
  keeps them in a queue, for each tick that of the newest frame, and sends an observation when the
  queue is half empty.
- `TorchRL`: its own inference server, over its shared memory (`torchrl_server.py`), one process;
  left out, and said so, where TorchRL is not installed.

`overhead` is the time from the tick whose frame an executed action was computed from to the
registered answer, less the inference time: taking the frame, waiting and handing over. Answers that
nobody executed are left out on all sides, since our ledger has none. `age` is that of the frame
behind the executed action, in ticks. `frames` are those behind executed actions, per second: a
chunk acts on every tick, but looks seldom.

    rtagent bench peers [--seconds S] [--rounds R] [--json]
"""

from __future__ import annotations

import multiprocessing
import statistics
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.connection import Client, Connection, Listener
from typing import Any

import numpy as np

from benchmarks.acting.peer_world import (
    SKIPPED_S,
    START_S,
    TICK_S,
    Executed,
    X,
    figures,
    overheads,
    tick_loop,
)
from benchmarks.acting.torchrl_server import SERVER, torchrl_server
from benchmarks.command import at_least, command_line
from benchmarks.replay.replay_contenders import peer
from benchmarks.runs import acting_run, rows_of
from rtagent.cli.output import print_json
from rtagent.errors import UserError
from rtagent.staggering.arbiter import Source

PROCESSES = X + 1
CHUNK = 20
SEND_AT = CHUNK // 2


# ---- ours


def ours(seconds: float) -> dict[str, float]:
    """The daemon, recounted from its ledger."""
    latency_s = X * TICK_S
    with acting_run(
        "env.id=benchmarks.worlds.pictures:Pictures",
        "policy.factory=benchmarks.worlds.pictures:Instant",
        "learning.processes=0", "replay.capacity=20000", f"inference.processes={PROCESSES}",
        f"inference.injected_latency_ms={1e3 * latency_s}", "inference.fill=0", limit_s=120.0,
    ) as runtime:
        time.sleep(SKIPPED_S)
        rows = rows_of(runtime, seconds)
        first = int(rows["tick"][0])
        earlier = runtime.world.ledger.read(first - 100, first)
    times = {int(row["tick"]): int(row["time_ns"]) for row in (*earlier, *rows)}
    executed, overheads = [], []
    for row in rows:
        acted = row["source"] != Source.DEFAULT
        executed.append(Executed(int(row["tick"]), int(row["observed"]) if acted else None))
        if acted and int(row["observed"]) in times:
            began = times[int(row["observed"])]
            overheads.append((int(row["registered_ns"]) - began) / 1e9 - latency_s)
    return figures(executed, overheads)


# ---- a Manager's dictionary


def _manager_actor(shared: Any, index: int, start: float, results: Any) -> None:
    registered: list[tuple[int, float]] = []
    number = index
    while True:
        time.sleep(max(0.0, start + number * TICK_S - time.monotonic()))
        while shared["newest"] < number:
            if shared["stop"]:
                results.put(registered)
                return
        frame, observation = shared["frame"]
        time.sleep(X * TICK_S)
        shared["action"] = (frame, int(observation[-1, 0, 0]) % 3)
        registered.append((frame, time.monotonic()))
        behind = int((time.monotonic() - start) / TICK_S) - number
        number += PROCESSES * max(1, -(-behind // PROCESSES))


def manager(seconds: float) -> dict[str, float]:
    """Frames and actions in a Manager's dictionary."""
    context = multiprocessing.get_context("spawn")
    with context.Manager() as server:
        shared: Any = server.dict(newest=-1, stop=False, action=(-1, 0))
        results = context.Queue()
        ready = context.Barrier(PROCESSES + 1)
        started = context.Value("d", 0.0)
        actors = [
            context.Process(
                target=_begin_actor, args=(ready, started, shared, index, results), daemon=True
            ) for index in range(PROCESSES)
        ]
        for each in actors:
            each.start()
        ready.wait(120)
        started.value = start = time.monotonic() + START_S
        last = -1

        def choose(tick: int) -> int | None:
            nonlocal last
            frame, _ = shared["action"]
            if frame <= last:
                return None
            last = frame
            return int(frame)

        def publish(tick: int, observation: np.ndarray) -> None:
            shared["frame"] = (tick, observation)
            shared["newest"] = tick

        executed, times = tick_loop(start, seconds, choose, publish)
        shared["stop"] = True
        registered = [each for _ in actors for each in results.get(timeout=60)]
        for each in actors:
            each.join()
    return figures(executed, overheads(registered, times, executed))


def _begin_actor(ready: Any, started: Any, shared: Any, index: int, results: Any) -> None:
    """Run an actor as soon as it is known when the first tick is due."""
    ready.wait(120)
    while not started.value:
        time.sleep(0.001)
    _manager_actor(shared, index, started.value, results)


# ---- a policy server and a queue of actions


def _policy_server(ready: Any) -> None:
    """Answer the newest observation with a chunk; older ones that came meanwhile are dropped."""
    with Listener(("127.0.0.1", 0)) as listener:
        ready.send(listener.address)
        with listener.accept() as client:
            newest: list[Any] = []
            arrived = threading.Event()

            def receive() -> None:
                try:
                    while True:
                        newest[:] = [client.recv()]
                        arrived.set()
                except EOFError:
                    newest[:] = [None]
                    arrived.set()

            threading.Thread(target=receive, daemon=True).start()
            while True:
                arrived.wait()
                arrived.clear()
                item = newest[0]
                if item is None:
                    return
                number, observation = item
                time.sleep(X * TICK_S)
                client.send((number, [int(observation[-1, 0, 0]) % 3] * CHUNK))


class ActionQueue:
    """Actions for the ticks to come. Of two for one tick, it keeps the one of the newer frame."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._observed: dict[int, int] = {}
        self._next = 0

    def add(self, observed: int, actions: list[int]) -> None:
        """Add a chunk, whose first action is for the tick after its frame."""
        with self._lock:
            for tick in range(max(self._next, observed + 1), observed + 1 + len(actions)):
                self._observed[tick] = max(observed, self._observed.get(tick, -1))

    def take(self, tick: int) -> int | None:
        """The frame behind the action of this tick, None if there is none."""
        with self._lock:
            self._next = tick + 1
            return self._observed.pop(tick, None)

    def __len__(self) -> int:
        return len(self._observed)


@contextmanager
def _served() -> Iterator[Connection]:
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    server = context.Process(target=_policy_server, args=(theirs,), daemon=True)
    server.start()
    with Client(ours.recv()) as connection:
        yield connection
    server.join(10)


def policy_server(seconds: float) -> dict[str, float]:
    """One server, chunks, and a queue at the client."""
    queue, registered = ActionQueue(), []
    with _served() as connection:

        def receive() -> None:
            try:
                while True:
                    number, actions = connection.recv()
                    queue.add(number, actions)
                    registered.append((number, time.monotonic()))
            except (EOFError, OSError):
                return

        threading.Thread(target=receive, daemon=True).start()

        def publish(tick: int, observation: np.ndarray) -> None:
            if len(queue) <= SEND_AT:
                connection.send((tick, observation))

        executed, times = tick_loop(time.monotonic() + START_S, seconds, queue.take, publish)
        time.sleep(2 * X * TICK_S)
    return figures(executed, overheads(registered, times, executed))


# ---- report

SIDES: dict[str, Callable[[float], dict[str, float]]] = {
    "ours": ours, "manager": manager, "policy server": policy_server, "TorchRL": torchrl_server,
}


def medians(rounds: list[dict[str, float]]) -> dict[str, float]:
    """The median of each figure over the rounds."""
    return {name: statistics.median(each[name] for each in rounds) for name in rounds[0]}


def available() -> dict[str, Callable[[float], dict[str, float]]]:
    """The sides that can take part; what is missing is said on stderr."""
    sides = dict(SIDES)
    try:
        peer(*SERVER)
    except UserError as error:
        print(f"without TorchRL: {error}", file=sys.stderr)
        del sides["TorchRL"]
    return sides


def main() -> int:
    """Print medians over the rounds, and the overhead of each peer over ours."""
    parser = command_line(__doc__)
    parser.add_argument(
        "--seconds", type=at_least(1.0), default=10.0, help="of each side in each round"
    )
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    sides = available()
    found: dict[str, list[dict[str, float]]] = {name: [] for name in sides}
    for number in range(args.rounds):
        for name, measure in sides.items():
            print(f"round {number + 1} of {args.rounds}: {name}", file=sys.stderr)
            found[name].append(measure(args.seconds))
    shown = {name: medians(rounds) for name, rounds in found.items()}
    ratios = {
        name: statistics.median(
            theirs["overhead_ms_p50"] / own["overhead_ms_p50"]
            for theirs, own in zip(found[name], found["ours"], strict=True)
        ) for name in sides if name != "ours"
    }
    if args.json:
        print_json({"rounds": found, "medians": shown, "overhead_ratio": ratios})
        return 0
    for name, each in shown.items():
        ratio = f"  {ratios[name]:.1f} x ours" if name in ratios else ""
        print(
            f"{name:14} inaction {each['inaction_percent']:6.2f} %  "
            f"{each['actions_per_s']:5.1f} actions/s of {each['frames_per_s']:5.1f} frames/s  "
            f"age {each['age_ticks']:5.2f} ticks  overhead p50 {each['overhead_ms_p50']:7.3f} "
            f"p99 {each['overhead_ms_p99']:7.3f} ms{ratio}"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
