"""`rtagent bench --check`: figures of the benchmarks against those that were committed.

`benchmarks/ratchet.json` has a record for each figure. Most figures are ratios of two sides in one
run, because these depend least on the machine.

The noise of a figure is the range of three runs, and a fourth is beyond that by chance, one time in
eight on one side. So a figure that seems lost is measured twice more: it is lost if the median of
the three runs is.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

from rtagent.cli.output import known, plain_table, print_json, stdout
from rtagent.errors import UserError

ROUNDS = 3
"""Runs of which the median is taken: by `--write`, and before a figure is called lost."""


@dataclass(frozen=True)
class Record:
    """One figure as it was committed.

    Attributes:
        figure: its name.
        benchmark: that prints the figure.
        arguments: of the benchmark.
        path: keys and indices to the figure in the benchmark's JSON.
        better: which direction is better.
        least_noise: the noise is never taken to be less, in the figure's unit.
        value: as measured. If None, the figure was not measured yet.
        noise: a loss up to this is no loss, in the figure's unit.
        load: processes that wanted a core, the mean of the minute before the measurement.
    """

    figure: str
    benchmark: str
    arguments: tuple[str, ...]
    path: tuple[str | int, ...]
    better: Literal["more", "less"]
    least_noise: float
    value: float | None = None
    noise: float = 0.0
    load: float | None = None

    def holds(self, now: float) -> bool:
        """Whether a new value is worse by no more than the noise, or nothing was committed yet."""
        if self.value is None:
            return True
        loss = self.value - now if self.better == "more" else now - self.value
        return loss <= max(self.noise, self.least_noise)

    def measured(self, values: Sequence[float], load: float) -> Record:
        """The record of several runs: their median, and as noise their range."""
        noise = max(max(values) - min(values), self.least_noise)
        return replace(self, value=statistics.median(values), noise=noise, load=load)


Measure = Callable[[str, tuple[str, ...]], Any]
"""The JSON of a benchmark run with these arguments."""


def read(path: Path) -> list[Record]:
    """The committed records."""
    entries: list[dict[str, Any]] = json.loads(path.read_text(encoding="utf-8"))
    return [
        Record(**each | {key: tuple(each[key]) for key in ("arguments", "path")})
        for each in entries
    ]


def write(path: Path, records: Sequence[Record]) -> None:
    """Replace the committed records."""
    text = json.dumps([asdict(each) for each in records], indent=2)
    path.write_text(f"{text}\n", encoding="utf-8")


def check(path: Path, name: str | None, measure: Measure, args: argparse.Namespace) -> int:
    """Measure, compare and print; with `--write`, commit what was measured.

    Returns:
        1 if a figure is worse by more than its noise, else 0.

    Raises:
        UserError: there is no record of that benchmark, a benchmark does not print a figure, or
            there is nothing to write.
    """
    records = read(path)
    chosen = [each for each in records if name in (None, each.benchmark)]
    if not chosen:
        names = ", ".join(sorted({each.benchmark for each in records}))
        raise UserError(f"bench --check {name}: the ratchet has no figure of it; it has {names}")
    load = round(os.getloadavg()[0], 1)
    if not args.write:
        values = _settled(chosen, measure)
        _show(chosen, values, as_json=args.json)
        return int(not all(map(Record.holds, chosen, values)))
    rounds = [_values_of(chosen, measure) for _ in range(ROUNDS)]
    medians = [_median(values) for values in zip(*rounds, strict=True)]
    _show(chosen, medians, as_json=args.json)
    if math.isnan(sum(map(sum, rounds))):
        raise UserError("bench --write: a figure is unknown, so nothing is written")
    new = {
        each.figure: each.measured(values, load)
        for each, *values in zip(chosen, *rounds, strict=True)
    }
    write(path, [new.get(each.figure, each) for each in records])
    return 0


def _settled(records: Sequence[Record], measure: Measure) -> list[float]:
    """The figures of one run; of those that do not hold in it, the medians of three."""
    runs = {
        each.figure: [now]
        for each, now in zip(records, _values_of(records, measure), strict=True)
    }
    lost = [each for each in records if not each.holds(*runs[each.figure])]
    for _ in range(ROUNDS - 1):
        for each, now in zip(lost, _values_of(lost, measure), strict=True):
            runs[each.figure].append(now)
    return [_median(values) for values in runs.values()]


def _median(values: Sequence[float]) -> float:
    """The median; unknown if one of the values is."""
    return math.nan if any(map(math.isnan, values)) else statistics.median(values)


def _values_of(records: Sequence[Record], measure: Measure) -> list[float]:
    """The figures as they are now; a benchmark with several figures is run once."""
    printed: dict[tuple[str, tuple[str, ...]], Any] = {}
    values = []
    for each in records:
        run = each.benchmark, each.arguments
        if run not in printed:
            printed[run] = measure(*run)
        values.append(_found(printed[run], each))
    return values


def _found(printed: Any, record: Record) -> float:
    """The figure of a record in a benchmark's JSON; unknown if that says so.

    Raises:
        UserError: there is no number and no null at the path of the record.
    """
    value = printed
    try:
        for key in record.path:
            value = value[key]
        return math.nan if value is None else float(value)
    except (LookupError, TypeError, ValueError):
        path = ".".join(map(str, record.path))
        raise UserError(
            f"bench {record.benchmark} does not print the figure {record.figure} at {path}; "
            "correct its path in the ratchet"
        ) from None


def _show(records: Sequence[Record], values: Sequence[float], *, as_json: bool) -> None:
    """Print a line for each figure."""
    if as_json:
        print_json([
            {"figure": each.figure, "committed": each.value, "noise": each.noise, "now": now,
             "holds": each.holds(now)}
            for each, now in zip(records, values, strict=True)
        ])
        return
    stdout().print(plain_table("figure", "better", "committed", "noise", "now", "", rows=(
        (each.figure, each.better, "not yet" if each.value is None else f"{each.value:.3g}",
         f"{max(each.noise, each.least_noise):.2g}", known(now, "{:.3g}"),
         "holds" if each.holds(now) else "LOST")
        for each, now in zip(records, values, strict=True)
    )))
