"""The benchmark of placement: what it reports of the cases that it has measured."""

from __future__ import annotations

import json
from typing import Any

import pytest

from benchmarks import placement


def test_each_case_is_in_the_report(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def measured(name: str, width: int, size: int, *_: Any) -> dict[str, Any]:
        return {"error": 0.1 if size < 64 else -0.2, "error_busy": 0.05, "speedup": size / 20.0}

    monkeypatch.setattr(placement, "measure", measured)
    assert placement.main(["--cases", "2", "--json"]) == 1
    report = json.loads(capsys.readouterr().out)
    assert list(report["cases"]) == ["nature, B=16", "nature, B=64"]
    assert (report["within"], report["within_busy"], report["of"]) == (1, 2, 2)
    assert report["slower"] == ["nature, B=16"]
