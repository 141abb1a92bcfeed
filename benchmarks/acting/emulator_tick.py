"""Time that one tick of the Game Boy takes the environment process, in microseconds.

    rtagent bench emulator_tick [--ticks N] [--json]

Each part is timed within the same tick, so that the caches are as they are in a run; a tick of
the real machine lasts 16,743 microseconds.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial

import numpy as np

from benchmarks.command import command_line
from rtagent.cli.output import print_json
from rtagent.config import GAME_BOY_HZ, EnvConfig
from rtagent.env.adapter import Adapter, open_environment
from rtagent.env.gameboy.gambatte_machine import GameBoy
from rtagent.env.gameboy.rom import BUNDLED, read_manifest
from rtagent.env.observers import to_grey

PARTS = ("press", "step", "screen", "preprocess", "ram", "sum")


def bare_parts(ticks: int) -> dict[str, list[float]]:
    """Microseconds of each part of `ticks` ticks of the bare machine, and of their sum."""
    rom = read_manifest(BUNDLED / "starfall")
    machine = GameBoy(rom.read())
    addresses = [rom.addresses[name] for name in ("screen", "lives", "level")]

    def read_ram() -> None:
        machine.ram.u16le(rom.addresses["score"])
        for address in addresses:
            machine.ram.u8(address)

    spent: dict[str, list[float]] = {part: [] for part in PARTS}
    for tick in range(ticks):
        buttons = rom.actions[tick // 30 % len(rom.actions)]
        marks = [time.perf_counter_ns()]
        for part in (
            partial(machine.press, buttons),
            machine.step,
            machine.screen,
            lambda: to_grey(machine.screen()),
            read_ram,
        ):
            part()
            marks.append(time.perf_counter_ns())
        for name, span in zip(PARTS, [*np.diff(marks), marks[-1] - marks[0]], strict=True):
            spent[name].append(span / 1000)
    machine.close()
    return spent


def whole_ticks(ticks: int) -> dict[str, list[float]]:
    """Microseconds of `Adapter.step` and `Adapter.reset`, as the environment process calls them."""
    adapter: Adapter = open_environment(EnvConfig(id="rtagent/Starfall-v0"))
    adapter.reset(seed=0)
    spent: dict[str, list[float]] = {"Adapter.step": [], "Adapter.reset": []}

    def timed(name: str, call: Callable[[], object]) -> None:
        begin = time.perf_counter_ns()
        call()
        spent[name].append((time.perf_counter_ns() - begin) / 1000)

    for tick in range(ticks):
        timed("Adapter.step", partial(adapter.step, tick // 30 % 3))
        if tick % 50 == 0:
            timed("Adapter.reset", adapter.reset)
    adapter.close()
    return spent


def main() -> None:
    """Print the table."""
    parser = command_line(__doc__)
    parser.add_argument("--ticks", type=int, default=20_000)
    args = parser.parse_args()
    spent = bare_parts(args.ticks) | whole_ticks(args.ticks)
    spread = {name: np.percentile(spans, [50, 99, 99.9]).tolist() for name, spans in spent.items()}
    if args.json:
        print_json({"unit": "us", "percentiles": [50, 99, 99.9], "spent": spread})
        return
    print(f"{'microseconds':16}{'p50':>9}{'p99':>9}{'p99.9':>9}")
    for name, (p50, p99, p999) in spread.items():
        print(f"{name:16}{p50:9.1f}{p99:9.1f}{p999:9.1f}")
    print(f"{'one tick lasts':16}{1e6 / GAME_BOY_HZ:9.1f}")


if __name__ == "__main__":
    main()
