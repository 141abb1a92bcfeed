"""What a buffer node takes of the learner's answers."""

from __future__ import annotations

import numpy as np
import pytest

from rtagent.cluster.message import Message, MessageError
from rtagent.cluster.node import Settings
from tests.cluster.edge import Edge


def test_an_error_for_each_transition_or_none_is_taken() -> None:
    # One error became the priority of all.
    world = Edge(prioritized=True).play(50)
    sent = world.node.make(8, Settings(8, 1e-3, 1.0))
    priorities = world.replay._priorities
    before = priorities.values(0, 50)
    answer = Message({"seq": sent.seq, "learned": 8}, {"errors": np.ones(1, np.float32)})
    with pytest.raises(MessageError, match="for 8 transitions"):
        world.node.answered(answer)
    np.testing.assert_array_equal(priorities.values(0, 50), before)
