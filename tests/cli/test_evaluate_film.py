from pathlib import Path

import cv2
import numpy as np
import pytest

from rtagent.cli.evaluate_film import Film
from rtagent.errors import UserError
from tests.limited import limited


@pytest.mark.parametrize("rate_hz", [0.5, 59.7275, 1000 / 15, 1000.0])
def test_a_film_has_a_picture_for_each_tick_at_any_rate(tmp_path: Path, rate_hz: float) -> None:
    path = tmp_path / "play.mp4"
    with Film(path, rate_hz) as film:
        for level in range(3):
            film(np.full((101, 103, 3), level, np.uint8))
    file = cv2.VideoCapture(str(path))
    assert file.get(cv2.CAP_PROP_FPS) == pytest.approx(rate_hz, rel=1e-3)
    assert [file.read()[0] for _ in range(4)] == [True, True, True, False]


def test_a_film_that_does_not_fit_onto_the_disk_is_refused(tmp_path: Path) -> None:
    film = Film(tmp_path / "play.mp4", 60.0)
    refused = pytest.raises(UserError, match=r"play\.mp4: was not written whole")
    with limited("FSIZE", 100), refused, film:
        film(np.zeros((84, 84), np.uint8))


def test_pictures_that_change_their_size_are_all_in_the_film(tmp_path: Path) -> None:
    path = tmp_path / "play.mp4"
    with Film(path, 20.0) as film:
        for shape in ((336, 400, 3), (350, 350, 3), (20, 30), (20, 30, 1)):
            film(np.zeros(shape, np.uint8))
    file = cv2.VideoCapture(str(path))
    assert [file.read()[0] for _ in range(5)] == [True, True, True, True, False]
