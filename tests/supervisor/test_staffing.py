"""What each process runs."""

from __future__ import annotations

import pytest

from rtagent import load_config
from rtagent.supervisor.staffing import ENTRIES, entry


@pytest.mark.parametrize("role", ENTRIES)
def test_a_role_runs_the_same_wherever_is_learned_but_the_learner(role: str) -> None:
    here, cluster = load_config(), load_config(overrides=["learning.where=cluster"])
    assert entry(role, here) == ENTRIES[role]
    gateway = "rtagent.cluster.gateway:run"
    assert entry(role, cluster) == (gateway if role == "learner" else ENTRIES[role])
