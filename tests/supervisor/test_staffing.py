"""What each process runs."""

from __future__ import annotations

import pytest

from rtagent import load_config
from rtagent.supervisor.staffing import ENTRIES, entry


@pytest.mark.parametrize("role", ENTRIES)
def test_learning_in_a_cluster_replaces_the_learner_alone(role: str) -> None:
    here, cluster = load_config(), load_config(overrides=["learning.where=cluster"])
    assert entry(role, here) == ENTRIES[role]
    gateway = "rtagent.cluster.gateway:run"
    assert entry(role, cluster) == (gateway if role == "learner" else ENTRIES[role])
