"""The benchmark of staggering in the running system: its command."""

from __future__ import annotations

import sys

import pytest

from benchmarks import live_staggering


def test_an_unknown_case_is_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(live_staggering, "measure_jitter", lambda seconds: "unmeasured")
    monkeypatch.setattr(sys, "argv", ["live_staggering", "thrity"])
    with pytest.raises(SystemExit) as ended:
        live_staggering.main()
    assert ended.value.code == 2
    assert "thirty" in capsys.readouterr().err
