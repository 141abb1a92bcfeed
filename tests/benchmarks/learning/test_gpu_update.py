"""The benchmark for GPUs, where there is none."""

from __future__ import annotations

import json

import pytest
import torch

from benchmarks.learning import gpu_update
from tests.refused import one_line


@pytest.mark.parametrize(
    ("device", "why"), [("cuda", "0 CUDA devices"), ("tpu", "device = 'tpu'")]
)
def test_without_a_gpu_it_says_so_in_one_line(
    device: str, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.backends.cuda, "is_built", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    with one_line(why):
        gpu_update.main(["--device", device])


def test_all_sides_are_measured(capsys: pytest.CaptureFixture[str]) -> None:
    wanted = ["--device", "cpu", "--width", "1", "--batch", "2", "--rounds", "1", "--json"]
    assert gpu_update.main(wanted) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["device"] == "the processor"
    assert min(found[f"{side}_per_s"] for side in ("plain", "float32", "auto")) > 0.0
