"""`rtagent experiment [NAME]`: the experiments under `benchmarks/` of a source checkout."""

from __future__ import annotations

import argparse
import importlib
import shlex
import sys
from pathlib import Path
from typing import Any

from rtagent.cli import bench
from rtagent.cli.options import add_json_option, check_between
from rtagent.cli.output import plain_table, report, stderr, stdout
from rtagent.cli.stop_signal import interrupted_by_stop_signals
from rtagent.config import MOST_SEED
from rtagent.errors import UserError
from rtagent.processes.interrupts import EXIT_INTERRUPTED

SHOWN_ROWS = 40


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("name", nargs="?", help="the experiment to run; default: list them")
    add("--list", action="store_true", help="list the experiments")
    add("--quick", action="store_true", help="minutes, not a night: fewer and shorter trials")
    add("--out", type=Path, metavar="DIR",
        help="folder of the results; what is finished in it is not run again "
        "(default: results/NAME, with --quick results/NAME-quick)")
    add("--seeds", type=int, nargs="+", metavar="K",
        help="seeds of the trials; default: the experiment's own, with --quick at most three")
    add("--only", action="append", default=[], metavar="NAME=VALUE",
        help="only the trials with this parameter; may be repeated, for those with all of them")
    add("--anew", action="store_true", help="remove the results in the folder, and begin anew")
    add_json_option(parser)


def run(args: argparse.Namespace) -> int:
    """List the experiments, or run the unfinished trials of one."""
    scripts = bench.find_scripts("benchmarks/experiments", "EXPERIMENT = ")
    scripts = {name.replace("_", "-"): path for name, path in scripts.items()}
    if args.list or args.name is None:
        _check_lone(args)
        bench.list_scripts(args, scripts, "experiment", "what it shows")
        return 0
    bench.find_script(args.name, scripts, "experiment")
    for seed in args.seeds or ():
        check_between("seeds", seed, 0, MOST_SEED)
    return _perform(args)


def _check_lone(args: argparse.Namespace) -> None:
    """Refuse options of a run where the experiments are listed: a name was forgotten."""
    for name in ("quick", "out", "seeds", "only", "anew"):
        if args.name is None and getattr(args, name):
            raise UserError(f"--{name}: give the name of an experiment, too")


def _perform(args: argparse.Namespace) -> int:
    # `benchmarks` belongs to the checkout, not to the installed package.
    if str(bench.CHECKOUT) not in sys.path:
        sys.path.insert(0, str(bench.CHECKOUT))
    engine: Any = importlib.import_module("benchmarks.experiment")
    out = args.out or Path("results", args.name + "-quick" * args.quick)
    command = ["rtagent", "experiment", args.name]
    command += ["--quick"] * args.quick + ["--out", str(out)]
    command += ["--seeds", *map(str, args.seeds)] if args.seeds else []
    command += [part for each in args.only for part in ("--only", each)]
    options = engine.Options(
        args.name, out, args.quick, args.seeds, tuple(args.only), args.anew, shlex.join(command)
    )
    try:
        with interrupted_by_stop_signals():
            record = engine.perform(engine.load(args.name), options)
    except KeyboardInterrupt:
        stderr().print(
            f"interrupted; {out} keeps what is finished; it goes on with: {options.command}",
            soft_wrap=True, markup=False, highlight=False,
        )
        return EXIT_INTERRUPTED
    except OSError as error:
        raise UserError(f"{out}: {error.strerror}") from None
    where = f"{out}, quick" if record["quick"] else str(out)
    report(args, record, lambda _: _show(engine.Results(record["trials"]), where))
    return int(any("failed" in trial for trial in record["trials"]))


def _show(results: Any, where: str) -> None:
    """Print the means with their intervals, if they fit a screen, and where the results are."""
    rows = results.means()
    names = dict.fromkeys(name for row in rows for name in row)
    if len(rows) <= SHOWN_ROWS:
        cells = ([str(row.get(name, "")) for name in names] for row in rows)
        stdout().print(plain_table(*names, rows=cells))
        stdout().print("± is half of the 95 % interval of a mean over the seeds")
    stdout().print(f"{where}: results.csv, intervals.csv, results.json and a picture")
