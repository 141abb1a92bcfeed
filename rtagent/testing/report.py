"""The results of the checks."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal

Verdict = Literal["ok", "warn", "fail", "skip", "bad"]


class NotRealtime(AssertionError):
    """An environment failed checks; the message names each, what was found and what to do."""


@dataclass(frozen=True)
class Check:
    """One check.

    Attributes:
        name: as in the table of `rtagent.testing`.
        verdict: ok, warn (works, at a price), fail, or skip (not applicable, or not reached); of a
            machine, bad: rtagent cannot work there.
        found: what was found.
        advice: what to do about it; empty if nothing.
    """

    name: str
    verdict: Verdict
    found: str
    advice: str = ""

    def __str__(self) -> str:
        told = f"{self.verdict:4}  {self.name}: {self.found}"
        return f"{told}; {self.advice}" if self.advice else told


@dataclass(frozen=True)
class Report:
    """All checks of one environment, in the order of the table of `rtagent.testing`.

    Attributes:
        environment: its id, or the callable's name.
        rate_hz: ticks per second that it was checked at; None if it could not be made.
    """

    environment: str
    rate_hz: float | None
    checks: tuple[Check, ...]

    @property
    def ok(self) -> bool:
        """Whether nothing failed; warnings are allowed."""
        return not self.failures

    @property
    def failures(self) -> tuple[Check, ...]:
        """The checks that failed."""
        return tuple(check for check in self.checks if check.verdict == "fail")

    def check(self, name: str) -> Check:
        """One check by its name.

        Raises:
            KeyError: there is no check of this name.
        """
        return {check.name: check for check in self.checks}[name]

    def raise_for_failures(self) -> None:
        """Raise an error if a check failed, as a test wants it.

        Raises:
            NotRealtime: a check failed.
        """
        if self.failures:
            lines = "\n".join(str(check) for check in self.failures)
            raise NotRealtime(f"{self.environment} is not fit for realtime use:\n{lines}")

    def as_dict(self) -> dict[str, Any]:
        """The report as one JSON object."""
        checks = [asdict(check) for check in self.checks]
        return {"environment": self.environment, "rate_hz": self.rate_hz, "ok": self.ok,
                "checks": checks}

    def __str__(self) -> str:
        return "\n".join(str(check) for check in self.checks)
