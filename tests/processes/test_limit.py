"""How many processes a machine may be asked for."""

from __future__ import annotations

import math
import os

import pytest

from rtagent.config import Config
from rtagent.config_sources import load_config
from rtagent.errors import UserError
from rtagent.processes import limit
from rtagent.processes.limit import (
    LEAST,
    PROCESS_BYTES,
    check_processes,
    most_busy_cores,
    most_processes,
)

PLENTY = 1 << 39


def config(*overrides: str) -> Config:
    return load_config(None, overrides, {})


@pytest.mark.parametrize(("cores", "most"), [(1, 32), (2, 48), (16, 272)])
def test_the_limit_by_cores(cores: int, most: int) -> None:
    assert most_processes(config(), cores, PLENTY) == most


def test_the_limit_by_memory() -> None:
    assert most_processes(config(), 64, 2 * 20 * PROCESS_BYTES) == 20
    assert most_processes(config(), 64, 0) == LEAST


def test_the_configuration_overrides_the_limit() -> None:
    assert most_processes(config("run.max_processes=200"), 1, PLENTY) == 200
    assert most_processes(config("run.max_processes=1"), 64, PLENTY) == 1


def test_what_is_not_given_is_asked_of_the_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: range(3))
    monkeypatch.setattr(limit, "available_memory", lambda: 2 * 20 * PROCESS_BYTES)
    assert most_processes(config(), available=PLENTY) == 64
    assert most_processes(config(), cores=64) == 20


def test_too_many_processes_are_refused_in_a_message_that_names_the_setting() -> None:
    check_processes(config("inference.processes=40", "learning.processes=8"), 48)
    for inference, learners, shown in ((40, 9, "40"), ("auto", 48, r"auto \(1 at least\)")):
        wanted = config(f"inference.processes={inference}", f"learning.processes={learners}")
        said = rf"= {shown} and learning.processes = {learners} are together more than the 48 "
        with pytest.raises(UserError, match=rf"{said}.*run\.max_processes"):
            check_processes(wanted, 48)


@pytest.mark.parametrize(("quota", "usable"), [(0.5, 0.5), (8.0, 3), (math.inf, 3)])
def test_a_quota_of_time_leaves_less_than_the_cores_that_there_are(
    monkeypatch: pytest.MonkeyPatch, quota: float, usable: float
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: range(3))
    monkeypatch.setattr(limit, "quota_cores", lambda: quota)
    assert most_busy_cores() == usable
