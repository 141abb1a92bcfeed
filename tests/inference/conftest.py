"""Fixtures for tests of the driver."""

from __future__ import annotations

import pytest

from tests.inference.driver_bench import Bench


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Bench:
    return Bench(monkeypatch)
