"""The token file."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from rtagent.errors import UserError
from service.http.token import load_or_make_token
from tests.refused import one_line

GIVEN = "A" * 43


def test_made_once_private_and_long(tmp_path: Path) -> None:
    state = tmp_path / "deep" / "state"
    token = load_or_make_token(state, {})
    assert len(bytes.fromhex(token)) == 32
    assert (state / "token").stat().st_mode & 0o777 == 0o600
    assert load_or_make_token(state, {}) == token
    assert os.listdir(state) == ["token"]


def test_mode_does_not_depend_on_the_umask(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        load_or_make_token(tmp_path / "state", {})
    finally:
        os.umask(before)
    assert (tmp_path / "state" / "token").stat().st_mode & 0o777 == 0o600
    assert (tmp_path / "state").stat().st_mode & 0o777 == 0o700


def test_environment_wins_and_makes_no_file(tmp_path: Path) -> None:
    load_or_make_token(tmp_path, {})
    assert load_or_make_token(tmp_path, {"RTAGENT_TOKEN": GIVEN}) == GIVEN
    assert load_or_make_token(tmp_path / "other", {"RTAGENT_TOKEN": GIVEN}) == GIVEN
    assert not (tmp_path / "other").exists()


@pytest.mark.parametrize("token", ["short", "A" * 42, "A" * 257, "A" * 43 + " x", "\u00e4" * 43])
def test_malformed_environment(tmp_path: Path, token: str) -> None:
    with pytest.raises(UserError, match="RTAGENT_TOKEN"):
        load_or_make_token(tmp_path, {"RTAGENT_TOKEN": token})


@pytest.mark.parametrize(
    "content", [b"", b"\n", b"short", b"A" * 42, b"A" * 5000, b"\xff" * 64, b"A" * 43 + b"\nB"]
)
def test_malformed_file(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "token"
    path.write_bytes(content)
    path.chmod(0o600)
    with one_line("no usable token"):
        load_or_make_token(tmp_path, {})
    assert path.read_bytes() == content


@pytest.mark.parametrize("mode", [0o644, 0o640, 0o620, 0o601])
def test_file_open_to_others(tmp_path: Path, mode: int) -> None:
    load_or_make_token(tmp_path, {})
    (tmp_path / "token").chmod(mode)
    with pytest.raises(UserError, match="open to other users"):
        load_or_make_token(tmp_path, {})


def test_not_a_file(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "token")
    with pytest.raises(UserError, match="not a file"):
        load_or_make_token(tmp_path, {})


@pytest.mark.parametrize("leads_somewhere", [True, False])
def test_a_link_is_refused(tmp_path: Path, leads_somewhere: bool) -> None:
    target = tmp_path / "planted"
    if leads_somewhere:
        target.write_text("A" * 43)
        target.chmod(0o600)
    (tmp_path / "token").symlink_to(target)
    with pytest.raises(UserError, match="is a link: remove it"):
        load_or_make_token(tmp_path, {})
    assert target.exists() == leads_somewhere


def test_state_dir_that_cannot_be(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match=r"cannot keep the token in .*--state-dir"):
        load_or_make_token(tmp_path / "file" / "state", {})
