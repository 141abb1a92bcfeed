"""The picture of a training run, and what it is drawn from."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from PIL import Image

from rtagent.telemetry.learning_curve import (
    MOST_SAMPLES,
    Episodes,
    History,
    _draw_loss,
    _draw_series,
    draw,
    moving_mean,
    read_episodes,
)


def figures(
    loss: float | None = 0.5, ratio: float | None = None, batch_size: int = 32
) -> dict[str, Any]:
    return {
        "learning": {"loss": loss, "batch_size": batch_size},
        "actions": {"inaction_fraction_60s": 0.015, "delay_ticks": {"mean": 2.5}},
        "r3": {"time_ratio": ratio, "data_ratio": ratio},
    }


def history_of(moments: Iterable[dict[str, Any]]) -> History:
    """A moment each second."""
    history = History(1.0)
    for second, each in enumerate(moments):
        history.add(float(second), each)
    return history


def panels_of(folder: Path, history: History, episodes: int = 0) -> int:
    """How many a drawn picture has."""
    columns = np.arange(2.0 * episodes).reshape(2, episodes)
    draw(folder / "learning.png", "a run", Episodes(*columns), history)
    with Image.open(folder / "learning.png") as picture:
        assert picture.width == 960
        return round(picture.height / 264)


@given(values=st.lists(st.floats(-1e3, 1e3), max_size=60), window=st.integers(1, 25))
def test_moving_mean(values: list[float], window: int) -> None:
    slowly = [np.mean(values[max(0, i + 1 - window) : i + 1]) for i in range(len(values))]
    found = moving_mean(np.array(values), window)
    assert found == pytest.approx(np.array(slowly), abs=1e-9)


def test_a_history_keeps_what_is_known() -> None:
    history = History(1.0)
    # The second comes too soon.
    for second, loss, size in ((0.0, None, 8), (0.5, 9.0, 9), (1.0, 0.25, 10), (2.0, np.nan, 11)):
        history.add(second, figures(loss, batch_size=size))
    assert [list(each) for each in history.series("loss")] == [[1.0], [0.25]]
    assert [list(each) for each in history.series("batch_size")] == [[0.0, 1.0, 2.0], [8, 10, 11]]
    assert len(history.series("time_ratio")[0]) == 0
    assert [history.series(name)[1][0] for name in ("inaction", "delay")] == [0.015, 2.5]


def test_a_history_of_any_length_stays_small_and_covers_all_of_it() -> None:
    length = 20 * MOST_SAMPLES
    seconds, _ = history_of(map(figures, range(length))).series("loss")
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


@pytest.mark.parametrize("unfinished", ["1", "179,60,7", "179,60,70.5,3.0", "\n179,"])
def test_a_last_line_that_is_not_finished_is_left_out(tmp_path: Path, unfinished: str) -> None:
    path = tmp_path / "episodes.csv"
    path.write_text("tick,length,return,seconds\n59,60,1.5,1.000\n" + unfinished)
    assert list(read_episodes(path).returns) == [1.5]
    path.write_text("tick,leng")
    assert len(read_episodes(path).returns) == 0


@pytest.mark.parametrize(
    ("episodes", "loss", "ratio", "panels"),
    # A loss of 0 has no logarithm.
    [(0, 0.5, None, 4), (1, 0.5, None, 4), (50, 0.0, None, 4), (50, 0.5, 0.5, 5)],
)
def test_a_picture_is_drawn_whatever_there_is(
    tmp_path: Path, episodes: int, loss: float, ratio: float | None, panels: int
) -> None:
    history = history_of(figures(loss, ratio) for _ in range(episodes))
    assert panels_of(tmp_path, history, episodes) == panels


@pytest.mark.parametrize(("sizes", "panels"), [([32, 32, 32], 4), ([32, 64, 64], 5)])
def test_a_batch_size_has_a_panel_only_if_it_changes(
    tmp_path: Path, sizes: list[int], panels: int
) -> None:
    assert panels_of(tmp_path, history_of(figures(batch_size=size) for size in sizes)) == panels


def overlapping_labels(axis: Any) -> list[str]:
    """Labels of a vertical axis that overlap the label below."""
    axis.figure.canvas.draw()
    boxes = sorted(
        (label.get_window_extent().y0, label.get_window_extent().y1, label.get_text())
        for label in [*axis.get_yticklabels(), *axis.get_yticklabels(minor=True)]
        if label.get_text()
    )
    return [text for (_, top, _), (low, _, text) in pairwise(boxes) if low < top]


@pytest.mark.parametrize("span", [0.1, 1.0, 12.0])
def test_the_labels_of_the_loss_do_not_overlap(span: float) -> None:
    history = history_of(figures(loss=10.0 ** (span * second / 50 - 3.0)) for second in range(50))
    figure = Figure(figsize=(8.0, 2.2), layout="constrained")
    FigureCanvasAgg(figure)
    axis = figure.subplots()
    _draw_loss(axis, history)
    assert overlapping_labels(axis) == []
    low, high = axis.get_ylim()
    assert any(low <= place <= high for place in axis.get_yticks())


@pytest.mark.parametrize("share", [0.0002, 0.05, 1.0])
def test_the_labels_of_inaction_tell_its_levels_apart(share: float) -> None:
    history = history_of({"actions": {"inaction_fraction_60s": share}} for _ in range(5))
    figure = Figure(figsize=(8.0, 2.2))
    FigureCanvasAgg(figure)
    axis = figure.subplots()
    _draw_series(axis, history=history, name="inaction", label="inaction")
    figure.canvas.draw()
    labels = [each.get_text() for each in axis.get_yticklabels()]
    assert len(set(labels)) == len(labels) > 2
    assert all(each.endswith("%") for each in labels)


@pytest.mark.parametrize("shares", [[0.999, 1.0], [1.0, 1.0], [0.0, 0.0]])
def test_a_curve_that_hardly_changes_lies_within_its_panel(shares: list[float]) -> None:
    """At the edge it would be hidden by the frame."""
    history = history_of({"actions": {"inaction_fraction_60s": share}} for share in shares)
    axis = Figure().subplots()
    _draw_series(axis, history=history, name="inaction", label="inaction")
    low, high = axis.get_ylim()
    assert low == 0.0
    assert high > 1.04 * max(shares)
