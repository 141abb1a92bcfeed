"""An error in a duty of the supervisor is reported, and affects nothing else."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest

from rtagent.clock import VirtualClock
from rtagent.supervisor.duties import REPORT_EVERY_S, Duties


class Stage:
    """What happened, on a virtual clock."""

    def __init__(self) -> None:
        self.clock = VirtualClock()
        self.events: list[dict[str, Any]] = []
        self.duties = Duties(SimpleNamespace(event=self._event), self.clock)  # type: ignore[arg-type]

    def _event(self, kind: str, source: str, **details: Any) -> None:
        assert (kind, source) == ("internal_error", "supervisor")
        self.events.append(details)


def test_a_failing_duty_is_reported_briefly_and_seldom() -> None:
    stage, fail = Stage(), Mock(side_effect=KeyError("x" * 100_000))
    assert stage.duties.do("fine", lambda: None)
    for _ in range(100):
        assert not stage.duties.do("memory", fail)
        stage.clock.advance(REPORT_EVERY_S / 100)
    assert len(stage.events) == 1
    assert stage.events[0]["duty"] == "memory"
    assert "KeyError: 'xxx" in stage.events[0]["error"]
    assert len(stage.events[0]["error"]) < 10_000
    stage.clock.advance(0.1)
    stage.duties.do("memory", fail)
    assert [each["failures"] for each in stage.events] == [1, 101]
    stage.duties.do("slips", fail)
    assert stage.events[-1]["duty"] == "slips"


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit])
def test_an_order_to_end_is_no_failure(error: type[BaseException]) -> None:
    with pytest.raises(error):
        Stage().duties.do("any", Mock(side_effect=error))
