"""`rtagent bench [NAME]`: the scripts under `benchmarks/` of a source checkout."""

from __future__ import annotations

import argparse
import ast
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, NoReturn

from rtagent.cli import bench_ratchet
from rtagent.cli.options import add_json_option
from rtagent.cli.output import plain_table, report, stdout
from rtagent.cli.stop_signal import handled_by
from rtagent.config_sources import is_setting
from rtagent.errors import UserError

RATCHET = Path("benchmarks", "ratchet.json")
CHECKOUT = Path(__file__).resolve().parents[2]
START = (
    "import runpy, sys; from rtagent.processes.interrupts import leave_at_ctrl_c; "
    "leave_at_ctrl_c(); runpy.run_path(sys.argv.pop(1), run_name='__main__')"
)
"""Runs a script. Ctrl-C ends it without a traceback before it has imported what it needs, too."""
Scripts = dict[str, Path]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--check", action="store_true",
        help="compare the figures that matter, or those of one benchmark, with "
        f"{RATCHET}; exit code 1: one is worse by more than its noise, in the median of three runs")
    add("--write", action="store_true",
        help="with --check: write what was measured, the medians of three runs, into that file")
    add("name", nargs="?", help="the benchmark to run; default: list them")
    add_json_option(parser)
    add("rest", nargs=argparse.REMAINDER, help="arguments of the benchmark")


def run(args: argparse.Namespace) -> int:
    """List the benchmarks, run one, or check their figures."""
    scripts = find_scripts()
    if args.write and not args.check:
        raise UserError("bench --write: goes with --check")
    if args.check:
        if args.rest:
            raise UserError(
                f"bench --check {args.name} {' '.join(args.rest)}: --write and --json go before "
                f"the name; the benchmark's own options are in {RATCHET}"
            )
        return bench_ratchet.check(CHECKOUT / RATCHET, args.name, _measure, args)
    if args.name is None:
        list_scripts(args, scripts, "benchmark", "what it measures")
        return 0
    path = find_script(args.name, scripts, "benchmark")
    options = ["--json"] if args.json and "--json" not in args.rest else []
    return _become(_command(path, *options, *args.rest))


def _command(path: Path, *arguments: str) -> list[str]:
    return [sys.executable, "-P", "-c", START, str(path), *arguments]


def _become(command: list[str]) -> NoReturn:
    """Go on as the benchmark: a signal that ends this process ends what it has started, too."""
    os.execve(command[0], command, _environ())


def _measure(name: str, arguments: tuple[str, ...]) -> Any:
    """The JSON that a benchmark prints; its exit code, which is about its own limits, is ignored.

    A signal that ends this process ends the benchmark first, which ends its daemon.

    Raises:
        UserError: it printed no JSON.
    """
    path = find_script(name, find_scripts(), "benchmark")
    # In a group of its own the benchmark gets a Ctrl-C once, from here, and not from the terminal.
    process = subprocess.Popen(
        _command(path, "--json", *arguments), env=_environ(), stdout=subprocess.PIPE, text=True,
        process_group=0,
    )
    received: list[int] = []

    def forward(number: int, _: object) -> None:
        received.append(number)
        process.send_signal(number)

    with process, handled_by(forward):
        printed, _ = process.communicate()
    if received:
        raise KeyboardInterrupt
    try:
        return json.loads(printed)
    except ValueError:
        raise UserError(f"{name} ended with {process.returncode} and no JSON") from None


def _environ() -> dict[str, str]:
    """Without settings of rtagent: what a benchmark measures is what it says."""
    paths = os.pathsep.join(filter(None, [str(CHECKOUT), os.environ.get("PYTHONPATH")]))
    own = {name: value for name, value in os.environ.items() if not is_setting(name)}
    return own | {"PYTHONPATH": paths}


def find_scripts(folder: str = "benchmarks", mark: str = '__name__ == "__main__"') -> Scripts:
    """The modules below a folder of the checkout whose text has the mark, by name.

    Raises:
        UserError: there is no checkout.
    """
    scripts = sorted((CHECKOUT / folder).rglob("*.py"), key=lambda path: path.stem)
    found = {path.stem: path for path in scripts if mark in path.read_text(encoding="utf-8")}
    if not found:
        raise UserError(
            "benchmarks and experiments come with a source checkout only: clone the repository "
            "and run rtagent from its virtual environment"
        )
    return found


def list_scripts(args: argparse.Namespace, scripts: Scripts, kind: str, what: str) -> None:
    """Print each script with the first line of its docstring."""
    summaries = {name: _summary(path) for name, path in scripts.items()}
    table = plain_table(kind, what, rows=summaries.items())
    listed = [{"name": name, "summary": text} for name, text in summaries.items()]
    report(args, listed, lambda _: stdout().print(table))


def find_script(name: str, scripts: Scripts, kind: str) -> Path:
    """The script of that name.

    Raises:
        UserError: there is none.
    """
    if name not in scripts:
        raise UserError(f"no {kind} {name!r}; there are: {', '.join(scripts)}")
    return scripts[name]


def _summary(path: Path) -> str:
    """First line of the script's docstring."""
    text = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    return text.partition("\n")[0]
