"""Shares that are joined to a batch."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from rtagent.clock import VirtualClock
from rtagent.cluster.message import Message, MessageError, unpack
from rtagent.cluster.mirror import Mirror
from rtagent.cluster.node import Settings
from rtagent.cluster.received_shares import Columns, ReceivedShares, batch_of
from rtagent.config import MOST_BATCH
from rtagent.learning.replay.replay import Replay
from tests.cluster.edge import Edge

SETTINGS = Settings(batch_size=64, learning_rate=5e-4, beta=0.7)
SHARE, TICKS = 32, 80


def share_of(edge: Edge, errors: float) -> tuple[Columns, npt.NDArray[np.float64]]:
    """A share of a node whose errors grow up to `errors`; with N P of its transitions."""
    edge.play(TICKS)
    source: Mirror | ReceivedShares = ReceivedShares(512, edge.blueprint)
    if edge.config.cluster.replay == "learner":
        source = Mirror(edge.config, edge.blueprint, VirtualClock())
        source.receive(unpack(edge.node.make(1, SETTINGS).block))
    replay: Replay = source.replay if isinstance(source, Mirror) else edge.replay
    replay.catch_up()
    known = np.linspace(0.01, 1.0, len(replay)) * errors
    frames = replay.index.frames(*replay.index.span)
    replay.update_errors(frames, known)
    sent = edge.node.make(SHARE, SETTINGS)
    columns = source.receive(unpack(sent.block))()
    priorities = (known + 1e-6) ** edge.config.learning.priority_exponent
    relative = dict(zip(frames.tolist(), priorities / priorities.mean(), strict=True))
    drawn = source._drawn if isinstance(source, Mirror) else sent.frames
    return columns, np.array([relative[frame] for frame in drawn.tolist()])


@pytest.mark.parametrize("replay", ["edge", "learner"])
def test_importance_weights_are_divided_by_the_largest_of_the_batch(replay: str) -> None:
    steep = share_of(Edge(replay=replay, prioritized=True), errors=10.0)
    flat = share_of(Edge(replay=replay, prioritized=True, priority_exponent=0.1), errors=1.0)
    wanted = np.concatenate([steep[1], flat[1]]) ** -SETTINGS.beta
    found = batch_of([steep[0], flat[0]]).weights
    np.testing.assert_allclose(found, wanted / wanted.max(), rtol=1e-5)


def of(count: int) -> dict[str, Any]:
    """The arrays of a share of so many transitions."""
    numbers, flags = np.zeros(count, np.float32), np.zeros(count, np.bool_)
    return {
        "slots": np.zeros((count, 4), np.int32), "actions": np.zeros(count, np.int64),
        "rewards": numbers, "discounts": numbers, "weights": numbers,
        "terminals": flags, "demonstrated": flags,
    }


@pytest.mark.parametrize("change", [
    of(0), of(MOST_BATCH + 1), {"actions": np.full(SHARE, 3)}, {"actions": np.full(SHARE, -1)},
    {"actions": np.zeros(SHARE, np.uint8)}, {"rewards": np.zeros((SHARE, 1), np.float32)},
    {"rewards": np.zeros(SHARE)}, {"terminals": np.zeros(SHARE, np.float32)},
    {"weights": np.array(1.0, np.float32)}, {"slots": np.zeros((SHARE, 2), np.int32)},
    {"slots": np.zeros(SHARE, np.int32)}, {"slots": np.zeros((SHARE, 4, 1), np.int32)},
    {"largest_weight": float("nan")},
    {"rewards": np.full(SHARE, np.nan, np.float32)}, {"weights": np.full(SHARE, -np.inf, "<f4")},
    {"new_frames": np.array([np.nan], np.float32)},
    {"largest_weight": 0.0}, {"demonstrated": np.zeros(SHARE + 1, np.bool_)},
])
def test_a_share_that_no_network_of_this_world_learns_from_is_refused(
    change: dict[str, Any]
) -> None:
    # Each ended the learner, or was learned from as something else.
    edge = Edge().play(TICKS)
    values, arrays = unpack(edge.node.make(SHARE, SETTINGS).block)
    ReceivedShares(512, edge.blueprint).receive(Message(values, arrays))
    bad = Message(
        values | {name: each for name, each in change.items() if name in values},
        arrays | {name: each for name, each in change.items() if name in arrays},
    )
    with pytest.raises(MessageError, match="no share"):
        ReceivedShares(512, edge.blueprint).receive(bad)


def test_a_frame_that_came_with_a_refused_share_is_not_learned_from() -> None:
    # The node had sent the next share before it knew, and does not send that frame again.
    edge = Edge().play(TICKS)
    values, arrays = unpack(edge.node.make(SHARE, SETTINGS).block)
    source = ReceivedShares(512, edge.blueprint)
    bad = {"new_frames": np.full_like(arrays["new_frames"], np.nan)}
    none = {name: arrays[name][:0] for name in ("new_slots", "new_frames")}
    for change in (bad, none):
        with pytest.raises(MessageError, match="not finite"):
            source.receive(Message(values, arrays | change))
