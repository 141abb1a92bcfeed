"""A film of an episode: an MP4 file of the pictures that the environment renders."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from rtagent.env.observers import to_rgb
from rtagent.errors import UserError

LEAST_SIDE = 336
"""Small pictures are enlarged by a whole number to at least this many pixels."""


class Film:
    """Writes pictures to a file that ends in .mp4, one per tick.

    Raises:
        UserError: at its end, if the file cannot be played.
    """

    def __init__(self, path: Path, rate_hz: float) -> None:
        self._path, self._rate_hz = path, rate_hz
        self._writer: Any = None
        self._size = (0, 0)

    def __enter__(self) -> Film:
        return self

    def __exit__(self, *raised: object) -> None:
        if self._writer is None:
            return
        self._writer.release()
        # The writer tells nobody that a disk is full.
        written = cv2.VideoCapture(str(self._path))
        whole = written.isOpened()
        written.release()
        if not whole and raised[0] is None:
            raise UserError(f"--video {self._path}: was not written whole; is the disk full?")

    def __call__(self, picture: NDArray[np.uint8] | None) -> None:
        """Add a picture, as `Adapter.picture` gives it.

        Raises:
            UserError: there is no picture, or the file cannot be written.
        """
        if picture is None:
            raise UserError(
                "--video: this environment shows nothing; "
                "try --set env.kwargs.render_mode=rgb_array"
            )
        times = max(1, -(-LEAST_SIDE // min(picture.shape[:2])))
        large: Any = np.repeat(np.repeat(to_rgb(picture), times, axis=0), times, axis=1)
        if self._writer is None:
            height, width = large.shape[:2]
            self._size = width, height
            kind = cv2.VideoWriter.fourcc(*"mp4v")
            # A unit of time of MPEG-4 is 1/65535 s or longer: 66.667 Hz would need 1/66667 s.
            rate = float(f"{self._rate_hz:.4g}")
            self._writer = cv2.VideoWriter(str(self._path), kind, rate, self._size)
            if not self._writer.isOpened():
                raise UserError(f"--video {self._path}: cannot be written")
        if large.shape[1::-1] != self._size:
            # The writer would leave it out.
            large = cv2.resize(large, self._size, interpolation=cv2.INTER_AREA)
        self._writer.write(cv2.cvtColor(large, cv2.COLOR_RGB2BGR))
