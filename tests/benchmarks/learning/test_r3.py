"""What R3 costs: what is printed of it."""

from __future__ import annotations

import sys

import pytest

from benchmarks.learning import r3


def test_its_table_can_be_written_into_a_file(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It went to stderr."""
    found = {
        "updates_per_s": {"off": 200.0, "max-a": 198.0}, "ratio": 0.99, "ratio_spread": [0.9, 1.1],
        "time_share": 0.02, "memory_bytes": 51_200, "used_bytes": 100 << 20, "memory_share": 5e-4,
        "passed": False,
    }
    monkeypatch.setattr(r3, "overhead", lambda rounds: found)
    monkeypatch.setattr(sys, "argv", ["r3"])
    assert r3.main() == 1
    assert capsys.readouterr().out.splitlines()[1:] == [
        "updates/s off 200, max-a 198: 0.990 times (rounds 0.900 to 1.100)",
        "controller: 2.00% of the learner's time (at most 1%)",
        "memory: 50 KiB of 100 MiB, 0.050% (at most 1%)", "MISSED",
    ]
