"""Sessions of browsers, and the codes that open them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from service.http.sessions import CODE_S, MOST_CODES, MOST_SESSIONS, SESSION_S, Sessions

TOKEN = "t" * 43


class Clock:
    """A clock that a test sets."""

    def __init__(self) -> None:
        self.time = 1e9

    def __call__(self) -> float:
        return self.time


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def wall() -> Clock:
    return Clock()


@pytest.fixture
def again(tmp_path: Path, clock: Clock, wall: Clock) -> Callable[..., Sessions]:
    """The sessions as the next process finds them."""
    return lambda token=TOKEN: Sessions(token, tmp_path / "sessions.json", clock, wall)


def test_a_code_opens_once(clock: Clock) -> None:
    sessions = Sessions(TOKEN, now=clock)
    code = sessions.new_code()
    assert len(code) >= 32
    assert not sessions.redeem(code + "x")
    assert not sessions.redeem("")
    assert sessions.redeem(code)
    assert not sessions.redeem(code)


def test_a_code_is_good_for_ten_minutes(clock: Clock) -> None:
    sessions = Sessions(TOKEN, now=clock)
    codes = [sessions.new_code() for _ in range(2)]
    clock.time += CODE_S - 1.0
    assert sessions.redeem(codes[0])
    clock.time += 1.0
    assert not sessions.redeem(codes[1])


def test_a_session_ends_after_a_week(clock: Clock) -> None:
    sessions = Sessions(TOKEN, now=clock)
    session = sessions.new_session()
    assert not sessions.knows("")
    assert not sessions.knows(TOKEN)
    clock.time += SESSION_S - 1.0
    assert sessions.knows(session)
    clock.time += 1.0
    assert not sessions.knows(session)


@pytest.mark.parametrize("step", [-60.0, 3600.0])
def test_a_wall_clock_that_is_set_changes_nothing(
    again: Callable[..., Sessions], clock: Clock, wall: Clock, step: float
) -> None:
    """As by NTP, a moment after the start of a machine that has no clock of its own."""
    before = again()
    first = before.new_code()
    before.write(before.content())
    sessions = again()
    second, session = sessions.new_code(), sessions.new_session()
    wall.time += step
    assert sessions.redeem(first)
    assert sessions.redeem(second)
    clock.time += SESSION_S - 1.0
    assert sessions.knows(session)
    clock.time += 1.0
    assert not sessions.knows(session)


def test_a_wall_clock_set_back_makes_no_session_of_the_file_immortal(
    again: Callable[..., Sessions], wall: Clock
) -> None:
    sessions = again()
    session = sessions.new_session()
    sessions.write(sessions.content())
    assert again().knows(session)
    wall.time -= 60.0
    assert not again().knows(session)


def test_a_session_lasts_as_long_although_the_machine_is_started_again(
    again: Callable[..., Sessions], clock: Clock, wall: Clock
) -> None:
    sessions = again()
    session = sessions.new_session()
    sessions.write(sessions.content())
    clock.time = 0.0
    wall.time += SESSION_S - 1.0
    assert again().knows(session)
    wall.time += 1.0
    assert not again().knows(session)


def test_one_session_ends_or_all(clock: Clock) -> None:
    sessions = Sessions(TOKEN, now=clock)
    first, second = sessions.new_session(), sessions.new_session()
    code = sessions.new_code()
    sessions.end(first)
    sessions.end("unknown")
    assert (sessions.knows(first), sessions.knows(second)) == (False, True)
    assert sessions.end_all() == 1
    assert not sessions.knows(second)
    assert not sessions.redeem(code)


def test_there_are_never_more_than_so_many(clock: Clock) -> None:
    sessions = Sessions(TOKEN, now=clock)
    opened = [sessions.new_session() for _ in range(MOST_SESSIONS + 3)]
    assert [sessions.knows(each) for each in opened] == [False] * 3 + [True] * MOST_SESSIONS
    codes = [sessions.new_code() for _ in range(MOST_CODES + 1)]
    assert [sessions.redeem(each) for each in codes] == [False] + [True] * MOST_CODES


def test_the_next_process_knows_them(again: Callable[..., Sessions], tmp_path: Path) -> None:
    sessions = again()
    used, code, session = sessions.new_code(), sessions.new_code(), sessions.new_session()
    assert sessions.redeem(used)
    sessions.write(sessions.content())
    found = again()
    assert found.knows(session)
    assert not found.redeem(used)
    assert found.redeem(code)
    path = tmp_path / "sessions.json"
    assert path.stat().st_mode & 0o777 == 0o600
    text = path.read_text()
    assert not any(secret in text for secret in (used, code, session, TOKEN))


def test_another_token_ends_them(again: Callable[..., Sessions]) -> None:
    sessions = again()
    session = sessions.new_session()
    sessions.write(sessions.content())
    assert not again("u" * 43).knows(session)


@pytest.mark.parametrize(
    "content",
    [b"", b"[]", b"null", b"{}", b"\xff", b'{"of": "x"}', b"[" * 30_000,
     b'{"of": "OF", "codes": [], "sessions": {}}', b'{"of": "OF", "codes": {}, "sessions": 3}',
     b'{"of": "OF", "codes": {"a": "x"}, "sessions": {}}',
     b'{"of": "OF", "codes": {"a": 1' + b"0" * 400 + b'}, "sessions": {}}'],
)
def test_a_damaged_file_costs_the_sessions_alone(
    again: Callable[..., Sessions], tmp_path: Path, content: bytes
) -> None:
    sessions = again()
    of = json.loads(sessions.content())["of"]
    path = tmp_path / "sessions.json"
    path.write_bytes(content.replace(b"OF", of.encode()))
    path.chmod(0o600)
    found = again()
    assert found.redeem(found.new_code())


def test_a_file_that_others_can_read_is_not_believed(
    again: Callable[..., Sessions], tmp_path: Path
) -> None:
    sessions = again()
    session = sessions.new_session()
    sessions.write(sessions.content())
    (tmp_path / "sessions.json").chmod(0o644)
    assert not again().knows(session)
