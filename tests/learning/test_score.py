"""How well the agent plays when a checkpoint is written."""

from __future__ import annotations

import pytest

from rtagent.learning.score import LIVE_EPISODES, score
from rtagent.memory.board import Board, add_episode
from rtagent.storage.checkpoint import Score


@pytest.fixture
def board() -> Board:
    return Board(memoryview(bytearray(Board.size())))


def finish(board: Board, *returns: float) -> None:
    for value in returns:
        count = int(board.environment["episodes"][0])
        add_episode(board.environment, count, 0, 10, value)


def test_a_few_episodes_say_nothing(board: Board) -> None:
    finish(board, *range(LIVE_EPISODES - 1))
    assert score(board) is None


def test_the_newest_live_episodes_count(board: Board) -> None:
    finish(board, 1000.0, *range(LIVE_EPISODES))
    assert score(board) == Score((LIVE_EPISODES - 1) / 2, LIVE_EPISODES, "live")


def test_a_return_that_is_no_number_is_no_score(board: Board) -> None:
    finish(board, *range(LIVE_EPISODES - 1), float("nan"))
    assert score(board) is None


def test_an_evaluation_counts_more(board: Board) -> None:
    finish(board, *range(LIVE_EPISODES))
    record = board.evaluation[0]
    record["evaluations"], record["episodes"], record["mean_return"] = 2, 10, 7.5
    assert score(board) == Score(7.5, 5, "evaluation")
