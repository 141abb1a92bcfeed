"""`rtagent bench [NAME]`: the scripts under `benchmarks/` of a source checkout."""

from __future__ import annotations

import argparse
import ast
import os
import subprocess
import sys
from pathlib import Path

from rtagent.cli.options import add_json_option
from rtagent.cli.output import plain_table, report, stdout
from rtagent.errors import UserError

CHECKOUT = Path(__file__).resolve().parents[2]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("name", nargs="?", help="the benchmark to run; default: list them")
    add_json_option(parser)
    add("rest", nargs=argparse.REMAINDER, help="arguments of the benchmark")


def run(args: argparse.Namespace) -> int:
    """List the benchmarks or run one."""
    scripts = _scripts(CHECKOUT / "benchmarks")
    if args.name is None:
        summaries = {name: _summary(path) for name, path in scripts.items()}
        table = plain_table("benchmark", "what it measures", rows=summaries.items())
        listed = [{"name": name, "summary": text} for name, text in summaries.items()]
        report(args, listed, lambda _: stdout().print(table))
        return 0
    if args.name not in scripts:
        raise UserError(f"no benchmark {args.name!r}; there are: {', '.join(scripts)}")
    options = ["--json"] if args.json and "--json" not in args.rest else []
    path = os.pathsep.join(filter(None, [str(CHECKOUT), os.environ.get("PYTHONPATH")]))
    command = [sys.executable, str(scripts[args.name]), *options, *args.rest]
    return subprocess.run(command, env=os.environ | {"PYTHONPATH": path}, check=False).returncode


def _scripts(folder: Path) -> dict[str, Path]:
    scripts = {path.stem: path for path in sorted(folder.glob("*.py"))
               if '__name__ == "__main__"' in path.read_text(encoding="utf-8")}
    if not scripts:
        raise UserError(
            "benchmarks come with a source checkout only: clone the repository and run "
            "`rtagent bench` from its virtual environment"
        )
    return scripts


def _summary(path: Path) -> str:
    """First line of the script's docstring."""
    text = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    return text.partition("\n")[0]
