"""What the tests of the figures share."""

from __future__ import annotations

import pytest

from tests.telemetry.counted_run import Run


@pytest.fixture
def run() -> Run:
    return Run()
