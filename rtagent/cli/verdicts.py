"""The lines of a report: what was looked at, and what came of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

from rich.text import Text

from rtagent.cli.options import plain_table, stdout
from rtagent.testing import report

Verdict = Literal["ok", "warn", "bad"]
_STYLES = {"ok": "green", "warn": "yellow", "bad": "bold red", "fail": "bold red", "skip": "dim"}


class Check(NamedTuple):
    """One line of `rtagent doctor`'s report.

    Attributes:
        name: what was looked at.
        verdict: ok, warn (works, less well) or bad (rtagent cannot work).
        found: what was there.
        advice: what to do about it; empty where nothing is to be done.
    """

    name: str
    verdict: Verdict
    found: str
    advice: str = ""


def judged(name: str, good: bool, found: str, advice: str, otherwise: Verdict = "warn") -> Check:
    """A check that is ok, or else has a verdict and advice."""
    return Check(name, "ok", found) if good else Check(name, otherwise, found, advice)


def show(checks: Sequence[Check | report.Check]) -> None:
    """Print a report."""
    stdout().print(plain_table("", "", "", rows=(
        (Text(check.verdict, _STYLES[check.verdict]), check.name,
         "\n".join(filter(None, (check.found, check.advice))))
        for check in checks
    )))
