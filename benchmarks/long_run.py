"""The command line of measurements that disturb a daemon for a while."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Mapping
from typing import Any


def main(
    description: str | None,
    run: Callable[[float, int], Mapping[str, Any]],
    show: Callable[[Mapping[str, Any]], None],
) -> int:
    """Measure; exit code 1 if a bar is missed.

    Args:
        description: the first line of it is the command's.
        run: given minutes and a seed; its result says whether it `passed`.
        show: prints the result, if not as JSON.
    """
    parser = argparse.ArgumentParser(description=(description or "").splitlines()[0])
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    result = run(args.minutes, args.seed)
    if args.json:
        print(json.dumps(result, indent=2))
    else:
        show(result)
    return int(not result["passed"])


def print_lines(result: Mapping[str, Any]) -> None:
    """One line for each value."""
    for name, value in result.items():
        print(f"{name}: {value}")
