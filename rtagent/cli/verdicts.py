"""One line of `rtagent doctor`'s report."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Literal

Verdict = Literal["ok", "warn", "bad"]


@dataclass(frozen=True)
class Check:
    """What was looked at, and what came of it.

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

    def as_dict(self) -> dict[str, str]:
        """For JSON."""
        return asdict(self)
