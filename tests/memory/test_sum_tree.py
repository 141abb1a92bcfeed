"""The sum tree: its sums are exact, and what is found lies where it was looked for."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rtagent.memory.sum_tree import CHILDREN, WIDEST_TOP, Doubles, Ints, SumTree, sum_tree

pytestmark = pytest.mark.usefixtures("either_way")

SIZES = [1, 7, CHILDREN, WIDEST_TOP, WIDEST_TOP + 1, CHILDREN * WIDEST_TOP + 1]
"""Of one level, two and three."""


def make_tree(leaves: int) -> tuple[SumTree, memoryview]:
    """A tree in which leaf i belongs to owner i."""
    memory = memoryview(bytearray(SumTree.size(leaves)))
    tree = sum_tree(memory, leaves)
    tree.owners[:] = np.arange(leaves)
    return tree, memory


def find(tree: SumTree, places: Doubles) -> Ints:
    """The leaves at some places; what is drawn has their values."""
    found = tree.draw(places)
    assert found[1].tolist() == tree.leaves[found[0]].tolist()
    return found[0]


def slow_find(values: np.ndarray, fraction: float) -> int:
    """Leaf by leaf, with exact numbers."""
    rest = fraction * values.sum()
    for leaf, value in enumerate(values.tolist()):
        if rest < value:
            return leaf
        rest -= value
    raise AssertionError("beyond the last leaf")


@given(seed=st.integers(0, 2**32 - 1), leaves=st.sampled_from(SIZES))
def test_no_rounding_error_stays(seed: int, leaves: int) -> None:
    """After any changes the memory is, bit for bit, that of a tree computed anew."""
    rng = np.random.default_rng(seed)
    tree, memory = make_tree(leaves)
    wanted = np.zeros(leaves)
    for _ in range(10):
        indices = rng.choice(leaves, min(leaves, int(rng.choice([1, 5, 300]))), replace=False)
        values = rng.random(len(indices)) * 10.0 ** rng.integers(-12, 12, len(indices))
        tree.set(indices, values)
        wanted[indices] = values
    found = bytes(memory)
    assert tree.leaves.tolist() == wanted.tolist()
    tree.dirty[0] = 1
    tree.repair()
    assert bytes(memory) == found
    tree.set(np.arange(leaves), 0.0)
    assert tree.draw(np.array([0.5])) is None


@given(seed=st.integers(0, 2**32 - 1), leaves=st.sampled_from(SIZES))
def test_finds_what_a_walk_along_the_leaves_finds(seed: int, leaves: int) -> None:
    """Whole numbers and eighths: nothing is rounded, so the answers must be the same."""
    rng = np.random.default_rng(seed)
    tree, _ = make_tree(leaves)
    values = rng.integers(0, 4, leaves).astype(float)
    values[rng.random(leaves) < rng.choice([0.0, 0.99])] = 0.0
    values[rng.integers(leaves)] = 1.0
    values[rng.integers(leaves)] += 2.0 ** np.ceil(np.log2(values.sum())) - values.sum()
    tree.set(np.arange(leaves), values)
    count = int(rng.choice([1, 8, 64]))
    places = rng.choice([0, 1, 1023, *rng.integers(0, 1024, 5)], count) / 1024
    fractions = (np.arange(count) + places) / count
    assert find(tree, places).tolist() == [slow_find(values, each) for each in fractions]


@given(seed=st.integers(0, 2**32 - 1), leaves=st.sampled_from(SIZES))
def test_never_finds_an_empty_leaf(seed: int, leaves: int) -> None:
    rng = np.random.default_rng(seed)
    tree, _ = make_tree(leaves)
    some = rng.choice(leaves, min(leaves, int(rng.choice([1, 20]))), replace=False)
    tree.set(some, rng.random(len(some)) * 10.0 ** rng.integers(-300, 300, len(some)) + 5e-324)
    places = np.concatenate([[0.0], rng.random(50), [np.nextafter(1.0, 0.0)]])
    found = find(tree, places)
    assert set(found.tolist()) <= set(some.tolist())


@given(seed=st.integers(0, 2**32 - 1), leaves=st.sampled_from(SIZES))
def test_what_changes_is_what_its_owner_still_has(seed: int, leaves: int) -> None:
    rng = np.random.default_rng(seed)
    tree, memory = make_tree(leaves)
    tree.owners[:] += leaves * rng.integers(0, 3, leaves)
    wanted = rng.random(leaves) * (rng.random(leaves) < 0.7)
    tree.set(np.arange(leaves), wanted)
    for _ in range(5):
        count = min(leaves, int(rng.choice([0, 1, 32, 300])))
        owners = rng.choice(3 * leaves, count, replace=False)
        values = rng.random(len(owners)) * 9.0
        values[rng.random(len(owners)) < 0.1] = rng.choice([np.nan, np.inf, 0.0])
        largest = 0.0
        for owner, value in zip(owners.tolist(), values.tolist(), strict=True):
            leaf = owner % leaves
            if tree.owners[leaf] == owner and wanted[leaf] > 0.0 and np.isfinite(value):
                wanted[leaf], largest = value, max(largest, value)
        assert tree.change(owners, values) == largest
        assert tree.leaves.tolist() == wanted.tolist()
    found = bytes(memory)
    tree.dirty[0] = 1
    tree.repair()
    assert bytes(memory) == found
