"""Scripts of keys: a good one, and every mistake as one line."""

from __future__ import annotations

from pathlib import Path

import pytest

from rtagent.env.gameboy.key_script import load_keys, parse_keys
from rtagent.errors import UserError


def test_a_script() -> None:
    text = "# to the field\n120   # the title\n2 START\n\n90 RIGHT A\n0\n"
    assert parse_keys(text) == [
        (120, (), 2), (2, ("START",), 3), (90, ("RIGHT", "A"), 5), (0, (), 6)
    ]


def test_a_script_may_be_written_on_windows(tmp_path: Path) -> None:
    path = tmp_path / "game.keys"
    path.write_bytes(b"\xef\xbb\xbf120\r\n2 START\r\n")
    assert load_keys(path) == [(120, (), 1), (2, ("START",), 2)]


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"2 START\nSTART 2", "line 2: 'START': expected a number of frames"),
        (b"-1 A", "line 1: '-1'"),
        ("٣ A".encode(), "line 1: "),
        (b"1 FIRE", "line 1: 'FIRE' is no button; there are B, SELECT"),
        (b"100000\n" * 3, "more than 200000 frames"),
        (b"\xff", "game.keys"),
        (b"#" * (2 << 20), "2097152 bytes, and 1048576 are the most"),
    ],
)
def test_a_bad_script_is_one_line(tmp_path: Path, content: bytes, reason: str) -> None:
    path = tmp_path / "game.keys"
    path.write_bytes(content)
    with pytest.raises(UserError) as caught:
        load_keys(path)
    assert reason in str(caught.value)
    assert str(path) in str(caught.value)
    with pytest.raises(UserError, match="cannot read the script"):
        load_keys(tmp_path / "none.keys")
