"""Copies of transitions: compiled or not, they are what the index holds."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from rtagent.learning.replay.look_up import LookUp, Transitions, row_dtype

pytestmark = pytest.mark.usefixtures("either_way")
CAPACITY = 50
ACTIONS = {
    "discrete": np.dtype("<i4"),
    "continuous": np.dtype(("<f4", (3,))),
    "double": np.dtype(("<f8", (2,))),
}
Columns = tuple[Any, Any]


@pytest.fixture(params=ACTIONS)
def columns(request: pytest.FixtureRequest) -> Columns:
    """A full index whose fields are all different."""
    action = ACTIONS[request.param]
    rng = np.random.default_rng(0)
    rows = np.zeros(CAPACITY, row_dtype(action))
    rows["shift"] = rng.integers(1, 6, CAPACITY)
    rows["reward"] = rng.normal(size=CAPACITY)
    rows["discount"] = rng.random(CAPACITY)
    rows["terminal"] = rng.random(CAPACITY) < 0.3
    rows["demonstrated"] = rng.random(CAPACITY) < 0.3
    rows["action"] = rng.integers(0, 100, rows["action"].shape)
    frames = np.cumsum(rng.integers(1, 4, CAPACITY))
    return frames, rows


def check(out: Transitions, columns: Columns, serials: Any) -> None:
    """Row by row, as the index would be read by hand."""
    for i, serial in enumerate(serials):
        row, frame = columns[1][serial % CAPACITY], columns[0][serial % CAPACITY]
        assert out.frame[i] == frame
        assert out.next_frame[i] == frame + row["shift"]
        assert out.discount[i] == row["discount"]
        assert out.reward[i] == row["reward"]
        assert np.array_equal(out.action[i], row["action"])
        assert out.terminal[i] == row["terminal"]
        assert out.demonstrated[i] == row["demonstrated"]


def test_all_columns_of_serials_that_have_gone_round(columns: Columns) -> None:
    serials = np.random.default_rng(1).integers(10**12, 10**12 + CAPACITY, 40)
    out = Transitions(40, columns[1].dtype)
    LookUp(*columns, serials, out).run()
    check(out, columns, serials)


def test_each_run_reads_the_index_again(columns: Columns) -> None:
    serials, out = np.arange(5), Transitions(5, columns[1].dtype)
    look_up = LookUp(*columns, serials, out)
    look_up.run()
    serials += 20
    columns[1]["reward"] += 1.0
    look_up.run()
    check(out, columns, serials)


@pytest.mark.parametrize(
    ("shifts", "common"),
    [
        ([2, 2, 2], 2), ([2, 2, 3], 0), ([3, 2, 2], 0), ([2, 3, 2], 0), ([7], 7), ([0, 2], 0),
        ([], 0),
    ],
)
def test_the_shift_that_all_have_in_common(
    columns: Columns, shifts: list[int], common: int
) -> None:
    count = len(shifts)
    columns[1]["shift"][:count] = shifts
    out = Transitions(count, columns[1].dtype)
    assert LookUp(*columns, np.arange(count), out).run() == common
