"""A picture for environments without pictures: a plot of their last observations."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageDraw

from service.daemon.png import Picture

Vectors = npt.NDArray[np.float32]

HEIGHT, WIDTH = 252, 336
MOST_LANES = 8
"""Longer vectors are shown as an image, whose rows are the numbers, bright where they are large."""
PAPER, INK, FAINT = (16, 20, 26), (110, 190, 255), (70, 80, 92)
TEXT_WIDTH = 66


def plot_vectors(vectors: Vectors) -> Picture:
    """Draw vectors over time, the newest on the right.

    Args:
        vectors: (n, numbers), oldest first, n at least 1. Each number is scaled from its least to
            its largest value.

    Returns:
        (HEIGHT, WIDTH, 3): for at most `MOST_LANES` numbers a curve for each with its newest value,
        else an image.
    """
    least, largest = vectors.min(axis=0), vectors.max(axis=0)
    span = np.where(largest > least, largest - least, 1.0)
    shares = np.where(largest > least, (vectors - least) / span, 0.5)
    if vectors.shape[1] > MOST_LANES:
        return _image(shares)
    picture = Image.new("RGB", (WIDTH, HEIGHT), PAPER)
    pen = ImageDraw.Draw(picture)
    lane = HEIGHT / vectors.shape[1]
    across = np.linspace(0, WIDTH - TEXT_WIDTH, len(vectors))
    for number in range(vectors.shape[1]):
        top = number * lane
        down = top + 0.1 * lane + 0.8 * lane * (1.0 - shares[:, number])
        if number:
            pen.line([(0, top), (WIDTH, top)], fill=FAINT)
        points = list(zip(across.tolist(), down.tolist(), strict=True))
        pen.line(points if len(points) > 1 else points * 2, fill=INK, width=2)
        newest = f"{float(vectors[-1, number]):.3g}"
        pen.text((WIDTH - TEXT_WIDTH + 6, top + lane / 2 - 6), newest, fill=INK)
    return np.asarray(picture, np.uint8)


def _image(shares: npt.NDArray[np.float64]) -> Picture:
    levels = (np.clip(shares, 0.0, 1.0).T * 255).astype(np.uint8)
    image = Image.fromarray(levels).resize((WIDTH, HEIGHT), Image.Resampling.NEAREST)
    return np.asarray(image.convert("RGB"), np.uint8)
