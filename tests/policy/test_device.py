"""Which device a setting means, and how a missing device is refused."""

from __future__ import annotations

import pytest
import torch

from rtagent.policy.device import usable_device
from tests.refused import one_line


def machine(monkeypatch: pytest.MonkeyPatch, gpus: int, built: bool = True) -> None:
    monkeypatch.setattr(torch.backends.cuda, "is_built", lambda: built)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: built and gpus > 0)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: gpus)


@pytest.mark.parametrize(
    ("setting", "gpus", "wanted"),
    [("auto", 0, "cpu"), ("auto", 2, "cuda:0"), ("cuda", 1, "cuda:0"), ("cuda:1", 2, "cuda:1"),
     ("cpu", 2, "cpu")],
)
def test_what_a_setting_means(
    setting: str, gpus: int, wanted: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine(monkeypatch, gpus)
    assert usable_device(setting, "learning.device") == torch.device(wanted)


def test_the_processor_is_taken_without_a_look_at_cuda(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("is_available", "device_count", "init"):
        monkeypatch.setattr(torch.cuda, name, lambda: pytest.fail("CUDA was asked"))
    assert usable_device("cpu", "learning.device").type == "cpu"


@pytest.mark.parametrize(
    ("built", "wanted"),
    [(True, "learning.device = 'cuda:3': 2 CUDA devices are usable here; use cpu"),
     (False, f"pypi.org/simple torch=={torch.__version__.partition('+')[0]}")],
)
def test_what_is_not_there_is_refused_in_one_line(
    built: bool, wanted: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine(monkeypatch, 2, built)
    with one_line() as caught:
        usable_device("cuda:3", "learning.device")
    assert str(caught.value).endswith(wanted)
