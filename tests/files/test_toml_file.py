"""Tables of a file, or one reason; never a long wait."""

from __future__ import annotations

from pathlib import Path

import pytest

from rtagent.files.toml_file import LARGEST, MOST_DOTS, MOST_LEVELS, read_toml


def test_tables(tmp_path: Path) -> None:
    path = tmp_path / "a.toml"
    path.write_text(f"# {'.' * 200}\n[a.b]\nc = [1, {{d = 0.5}}]\n")
    assert read_toml(path) == {"a": {"b": {"c": [1, {"d": 0.5}]}}}


def test_a_byte_order_mark_is_no_part_of_the_text(tmp_path: Path) -> None:
    path = tmp_path / "a.toml"
    path.write_bytes(b"\xef\xbb\xbfa = 1\r\n")
    assert read_toml(path) == {"a": 1}


@pytest.mark.parametrize(("content", "reason"), [
    (".".join("a" * 2000) + " = 1", "more than 100 dots in a line"),
    ('"#".' * (MOST_DOTS + 1) + "a = 1", "line 1: more than"),
    ("x = " + "[" * 20_000, "nested too deeply"),
    ("x = " + "{a = " * MOST_LEVELS + "1" + "}" * MOST_LEVELS, "32 levels are the most"),
    ("[" + ".".join("a" * MOST_LEVELS) + "]", "32 levels are the most"),
    ("x = " + "1" * 5000, "4300 digits"),
    ("x = 0x" + "f" * 5000, "4300 digits"),
    ("x = ", "Invalid value"),
    (b"\xff", "utf-8"),
])
def test_bad_files(tmp_path: Path, content: str | bytes, reason: str) -> None:
    path = tmp_path / "a.toml"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(ValueError, match=reason):
        read_toml(path)


def test_as_many_levels_as_there_may_be(tmp_path: Path) -> None:
    path = tmp_path / "a.toml"
    path.write_text("[" + ".".join("a" * (MOST_LEVELS - 1)) + "]")
    assert read_toml(path)


def test_a_large_file_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "a.toml"
    path.write_bytes(b"#" * (LARGEST + 1))
    with pytest.raises(OSError, match="65537 bytes, and 65536 are the most"):
        read_toml(path)
