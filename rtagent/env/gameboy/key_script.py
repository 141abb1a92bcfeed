"""Scripts of keys, which lead from a cartridge's boot to the start of an episode.

Each line is a number of frames, then the buttons held in them, if any; `#` begins a comment:

    120            # the title appears
    2 START
    90 RIGHT A
"""

from __future__ import annotations

from pathlib import Path

from rtagent.env.gameboy.machine import BUTTON_NAMES
from rtagent.errors import UserError
from rtagent.files.regular_file import read_regular

SUFFIX = ".keys"
MAX_FILE_BYTES = 1 << 20
MAX_FRAMES = 200_000
"""Nearly an hour of play, and less than a minute of an emulator's time."""

Keys = list[tuple[int, tuple[str, ...], int]]
"""For each line the frames, the buttons held in them, and the number of the line."""


def load_keys(path: Path) -> Keys:
    """Read a script; a UserError names the line that is wrong."""
    try:
        # Editors on Windows begin a file with a byte-order mark.
        return parse_keys(read_regular(path, MAX_FILE_BYTES).decode("utf-8-sig"))
    except OSError as error:
        raise UserError(f"cannot read the script {path}: {error.strerror}") from None
    except ValueError as error:
        raise UserError(f"{path}: {error}") from None


def parse_keys(text: str) -> Keys:
    """Read the lines of a script; a ValueError names the one that is wrong."""
    keys: Keys = []
    for number, line in enumerate(text.splitlines(), 1):
        words = line.partition("#")[0].split()
        if not words:
            continue
        if not (words[0].isascii() and words[0].isdigit() and len(words[0]) <= 6):
            raise ValueError(f"line {number}: {words[0]!r}: expected a number of frames")
        for word in words[1:]:
            if word not in BUTTON_NAMES:
                known = ", ".join(BUTTON_NAMES)
                raise ValueError(f"line {number}: {word!r} is no button; there are {known}")
        keys.append((int(words[0]), tuple(words[1:]), number))
    if sum(frames for frames, _, _ in keys) > MAX_FRAMES:
        raise ValueError(f"more than {MAX_FRAMES} frames")
    return keys
