"""The lines of a report of checks."""

from __future__ import annotations

from collections.abc import Sequence

from rich.text import Text

from rtagent.cli.output import plain_table, stdout
from rtagent.logs.printable import printable
from rtagent.testing.report import Check, Verdict

_STYLES = {"ok": "green", "warn": "yellow", "bad": "bold red", "fail": "bold red", "skip": "dim"}


def judged(name: str, good: bool, found: str, advice: str, otherwise: Verdict = "warn") -> Check:
    """A check that is ok if `good`, else has the verdict `otherwise` and advice."""
    return Check(name, "ok", found) if good else Check(name, otherwise, found, advice)


def show(checks: Sequence[Check]) -> None:
    """Print a line for each check."""
    stdout().print(plain_table("", "", "", rows=(
        (Text(check.verdict, _STYLES[check.verdict]), check.name,
         "\n".join(printable(each) for each in (check.found, check.advice) if each))
        for check in checks
    )))
