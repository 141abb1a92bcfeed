"""The plot of vector observations."""

from __future__ import annotations

import numpy as np
import pytest

from service.daemon.vector_plot import HEIGHT, INK, MOST_LANES, TEXT_WIDTH, WIDTH, plot_vectors


def ink(picture: np.ndarray) -> np.ndarray:
    """The pixels of curves; the texts are cut off."""
    return (picture[:, : WIDTH - TEXT_WIDTH] == INK).all(axis=2)


def test_each_number_has_a_lane_with_a_scale_of_its_own() -> None:
    time = np.linspace(0.0, 1.0, 100)
    vectors = np.stack([time, 1000.0 * (1.0 - time)], axis=1).astype(np.float32)
    picture = plot_vectors(vectors)
    assert picture.shape == (HEIGHT, WIDTH, 3)
    assert picture.dtype == np.uint8
    upper, lower = ink(picture)[: HEIGHT // 2], ink(picture)[HEIGHT // 2 :]
    for lane, rises in ((upper, True), (lower, False)):
        left, right = (np.flatnonzero(lane[:, column]).mean() for column in (5, -5))
        assert (left > right) == rises
        assert abs(left - right) > 0.6 * HEIGHT / 2


@pytest.mark.parametrize("count", [1, 2, 50])
def test_what_does_not_change_is_a_line_in_the_middle(count: int) -> None:
    rows, _ = np.nonzero(ink(plot_vectors(np.full((count, 1), 3.5, np.float32))))
    assert abs(rows.mean() - HEIGHT / 2) < 3


def test_many_numbers_are_a_map() -> None:
    vectors = np.zeros((30, MOST_LANES + 4), np.float32)
    vectors[15:, 0] = 1.0
    picture = plot_vectors(vectors)
    assert picture.shape == (HEIGHT, WIDTH, 3)
    assert picture[0, 0].tolist() == [0, 0, 0]
    assert picture[0, -1].tolist() == [255, 255, 255]
