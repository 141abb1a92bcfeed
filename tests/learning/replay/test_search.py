"""Transitions are found by their frames, however unevenly these grow; compiled or not."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from rtagent.learning.replay.search import Search

pytestmark = pytest.mark.usefixtures("either_way")
CAPACITY = 60


@given(
    st.lists(st.sampled_from([1, 2, 30, 10**9, 10**12]), min_size=1, max_size=CAPACITY),
    st.integers(0, 10**12),
    st.integers(0, 10**12),
)
@example([1] * CAPACITY, 0, CAPACITY // 2)
def test_finds_all_frames_and_no_others(steps: list[int], start: int, first: int) -> None:
    frames = start + np.cumsum(steps)
    serials = first + np.arange(len(frames))
    column = np.full(CAPACITY, -1)
    column[serials % CAPACITY] = frames
    known = dict(zip(frames.tolist(), serials.tolist(), strict=True))
    wanted = np.concatenate([frames, frames[::-1] + 1, frames - 1, [0, frames[-1] + 10**12]])
    search = Search(column)
    found, whole = search.find(first, first + len(frames), wanted)
    assert found.tolist() == [known.get(frame, -1) for frame in wanted.tolist()]
    assert not whole
    found, whole = search.find(first, first + len(frames), frames)
    assert found.tolist() == serials.tolist()
    assert whole


def test_more_at_once_than_before_and_fewer() -> None:
    search, counts = Search(np.arange(1000) * 3), (10, 800, 10)
    found = [search.find(0, 1000, (count - 1 - np.arange(count)) * 3)[0] for count in counts]
    # Each stays as it is: a batch is mended by further searches.
    assert [each.tolist() for each in found] == [list(range(count))[::-1] for count in counts]
