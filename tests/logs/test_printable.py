"""Text on its way to a terminal."""

from __future__ import annotations

import pytest

from rtagent.logs.printable import printable


@pytest.mark.parametrize(("said", "shown"), [
    ("ValueError: 3 µs, 日本", "ValueError: 3 µs, 日本"),
    ("\x1b[31mred\x1b]0;title\x07", " [31mred ]0;title "),
    ("a\x9b2Jb\x00\x7f\x08", "a 2Jb   "),
    ("two\r\nlines\tand\u2028more", "two  lines and more"),
    ("\u202egnp.exe", " gnp.exe"),
    ("\udcff", " "),
])
def test_nothing_a_terminal_obeys_is_left(said: str, shown: str) -> None:
    assert printable(said) == shown
