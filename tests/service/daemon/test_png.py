"""Pictures as PNG, read by another implementation."""

from __future__ import annotations

import io

import numpy as np
import pytest
from PIL import Image

from service.daemon.png import SCREEN_SIZE, png_bytes


@pytest.mark.parametrize(
    "shape", [(84, 84), (84, 84, 3), (1, 1), (3, 200), (144, 160, 3), (400, 300), (210, 160, 3)]
)
def test_every_pixel_becomes_a_square(shape: tuple[int, ...]) -> None:
    picture = np.random.default_rng(0).integers(0, 256, shape, np.uint8)
    found = np.asarray(Image.open(io.BytesIO(png_bytes(picture))))
    factor = max(1, SCREEN_SIZE // max(shape[:2]))
    assert (found == picture.repeat(factor, axis=0).repeat(factor, axis=1)).all()


def test_a_view_of_a_picture() -> None:
    planes = np.arange(4 * 6 * 8, dtype=np.uint8).reshape(4, 6, 8)
    found = np.asarray(Image.open(io.BytesIO(png_bytes(planes.transpose(1, 2, 0)[..., :3]))))
    assert (found[::42, ::42] == planes.transpose(1, 2, 0)[..., :3]).all()


def test_what_repeats_costs_little() -> None:
    busy = np.random.default_rng(0).integers(0, 256, (84, 84), np.uint8)
    assert len(png_bytes(busy)) < 3 * busy.size
    assert len(png_bytes(np.zeros((84, 84), np.uint8))) < 1500
