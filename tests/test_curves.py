"""The picture of a training run, and what it is drawn from."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from rtagent.curves import MOST_SAMPLES, Episodes, History, draw, moving_mean, read_episodes


def figures(updates: float, loss: float | None = 0.5, ratio: float | None = None) -> dict:
    return {
        "learning": {"updates": updates, "loss": loss, "batch_size": 32},
        "r3": {"time_ratio": ratio, "data_ratio": ratio},
    }


@given(
    values=st.lists(st.floats(-1e3, 1e3), max_size=60), window=st.integers(1, 25)
)
def test_moving_mean(values: list[float], window: int) -> None:
    slowly = [np.mean(values[max(0, i + 1 - window) : i + 1]) for i in range(len(values))]
    found = moving_mean(np.array(values), window)
    assert found == pytest.approx(np.array(slowly), abs=1e-9)


def test_a_history_keeps_what_is_known() -> None:
    history = History(1.0)
    history.add(0.0, figures(0, None))
    history.add(0.5, figures(1, 9.0))
    history.add(1.0, figures(2, 0.25))
    history.add(2.0, figures(3, float("nan")))
    assert [list(each) for each in history.series("loss")] == [[1.0], [0.25]]
    assert [list(each) for each in history.series("updates")] == [[0.0, 1.0, 2.0], [0.0, 2.0, 3.0]]
    assert len(history.series("time_ratio")[0]) == 0


def test_a_history_of_any_length_stays_small_and_covers_all_of_it() -> None:
    history = History(1.0)
    length = 20 * MOST_SAMPLES
    for second in range(length):
        history.add(float(second), figures(second))
    seconds, _ = history.series("updates")
    assert MOST_SAMPLES / 4 < len(seconds) <= MOST_SAMPLES
    assert seconds[0] == 0.0
    assert seconds[-1] > 0.95 * length
    assert np.diff(seconds).max() < 3 * np.diff(seconds).min()


def test_episodes_are_read(tmp_path: Path) -> None:
    path = tmp_path / "episodes.csv"
    assert len(read_episodes(path).returns) == 0
    path.write_text("tick,length,return,seconds\n59,60,1.5,1.000\n119,61,-2.0,2.000\n")
    found = read_episodes(path)
    assert list(found.seconds) == [1.0, 2.0]
    assert list(found.returns) == [1.5, -2.0]
    assert list(found.lengths) == [60.0, 61.0]


@pytest.mark.parametrize("episodes", [0, 1, 50])
@pytest.mark.parametrize("ratio", [None, 0.5])
def test_a_picture_is_drawn_whatever_there_is(
    tmp_path: Path, episodes: int, ratio: float | None
) -> None:
    history = History(1.0)
    for second in range(episodes):
        history.add(float(second), figures(second, ratio=ratio))
    columns = np.arange(3.0 * episodes).reshape(3, episodes)
    draw(tmp_path / "learning.png", "a run", Episodes(*columns), history)
    with Image.open(tmp_path / "learning.png") as picture:
        panels = 4 if ratio is not None and episodes else 3
        assert picture.size == (960, round(264 * panels))


def test_a_loss_of_zero_needs_no_logarithm(tmp_path: Path) -> None:
    history = History(1.0)
    for second in range(3):
        history.add(float(second), figures(second, loss=0.0))
    draw(tmp_path / "learning.png", "a run", Episodes(*np.zeros((3, 0))), history)
    assert (tmp_path / "learning.png").stat().st_size > 0
