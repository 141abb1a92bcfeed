"""A process that the supervisor watches."""

from __future__ import annotations

from functools import partial

import pytest

from tests.supervisor.watched import Watch, Watched


@pytest.fixture
def watch(monkeypatch: pytest.MonkeyPatch) -> Watch:
    """Starts a process of a role."""
    return partial(Watched, monkeypatch)
