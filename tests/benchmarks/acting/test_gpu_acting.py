"""The benchmark of acting on a GPU, where there is none: its command, and what it counts."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from benchmarks.acting import gpu_acting
from rtagent.memory.ledger import Ledger
from rtagent.staggering.arbiter import Source
from tests.conftest import make_blueprint
from tests.refused import one_line
from tests.rows import write_row


@pytest.mark.parametrize(
    ("wanted", "why"), [
        (["--device", "cuda"], "0 CUDA devices"), (["--device", "tpu"], "policy.device = 'tpu'"),
        (["--device", "cpu", "--set", "policy.width=-1"], "policy.width"),
    ],
)
def test_what_cannot_be_run_is_refused_in_one_line(
    wanted: list[str], why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.backends.cuda, "is_built", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    with one_line(why):
        gpu_acting.main(wanted)


@pytest.mark.parametrize("acted", [0, 6])
def test_inaction_and_delay_are_those_of_the_rows(
    acted: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = Ledger.private(make_blueprint(), 64)
    for tick in range(8):
        source = Source.AGENT if tick < acted else Source.DEFAULT
        write_row(ledger, tick, observed=tick - 2, source=source)
    stats = {"inference": {"estimate_ms": None}, "learning": {"updates_per_s": None}}
    runtime: Any = SimpleNamespace(set_inference=lambda processes: None, stats=lambda: stats)
    monkeypatch.setattr(gpu_acting, "SETTLE_S", 0.0)
    monkeypatch.setattr(gpu_acting, "rows_of", lambda runtime, seconds: ledger.read(0, 8))
    found = gpu_acting.measure(runtime, 2, 10.0)
    assert (found["processes"], found["ticks"]) == (2, 8)
    assert (found["inaction"], found["new_actions"]) == (1.0 - acted / 8, acted / 8)
    assert found["delay_mean"] == (2.0 if acted else None)
