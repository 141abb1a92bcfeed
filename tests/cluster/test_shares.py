"""Shares of a batch."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from rtagent.cluster.shares import shares

RATES = st.dictionaries(st.text(max_size=3), st.floats(0, 1e4), min_size=1, max_size=8)


def test_in_proportion_to_what_each_generates() -> None:
    assert shares(32, {"a": 60.0, "b": 20.0}) == {"a": 24, "b": 8}
    assert shares(32, {"a": 0.0, "b": 0.0}) == {"a": 16, "b": 16}
    assert shares(32, {"a": 1.0}) == {"a": 32}


@given(st.integers(8, 600), RATES)
def test_they_make_up_the_batch_and_nobody_is_left_out(size: int, rates: dict[str, float]) -> None:
    found = shares(size, rates)
    assert set(found) == set(rates)
    assert sum(found.values()) == size
    assert min(found.values()) >= 1
    total = sum(rates.values())
    for node, rate in rates.items():
        exact = rate / total * size if total else size / len(rates)
        # Everybody's one may take from the others at most what it gives.
        assert abs(found[node] - exact) <= len(rates) + 1


@given(st.integers(1, 7))
def test_with_more_nodes_than_transitions_some_have_none(size: int) -> None:
    found = shares(size, {str(node): 1.0 for node in range(8)})
    assert sum(found.values()) == size
    assert max(found.values()) <= 1
