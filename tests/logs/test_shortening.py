"""Whatever a process says, what is kept of it is short, and JSON can hold it."""

from __future__ import annotations

import json
import re
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rtagent.logs.shortening import (
    ERROR_LINES,
    LINE_CHARACTERS,
    MOST_NAMES,
    current_traceback,
    short_details,
    short_error,
    short_text,
)


class Unprintable:
    """Has no text."""

    def __str__(self) -> str:
        raise RuntimeError("no")


@given(st.text(max_size=50).map(lambda text: text * 40), st.integers(100, 3000))
@settings(max_examples=200)
def test_text_fits_as_json(text: str, most: int) -> None:
    shown = short_text(text, most)
    assert len(json.dumps(shown)) <= most
    if len(json.dumps(text)) <= most:
        assert shown == text


def test_beginning_and_end_stay_and_what_is_left_out_is_counted() -> None:
    shown = short_text("a" * 50 + "x" * 1_000_000 + "z" * 50, 200)
    assert shown.startswith("a" * 50)
    assert shown.endswith("z" * 50)
    assert "[... 999" in shown


def test_an_error_keeps_its_name_however_long_its_message() -> None:
    text = "Traceback (most recent call last):\n  somewhere\nValueError: " + "x" * 2_000_000
    first, where, last = short_error(text).splitlines()
    assert (first, where) == ("Traceback (most recent call last):", "  somewhere")
    assert last.startswith("ValueError: xxx")
    assert len(last) < LINE_CHARACTERS + 10


def test_the_last_line_of_a_traceback_is_the_whole_error_and_its_place() -> None:
    try:
        raise ValueError("no\nmotor\n")
    except ValueError:
        lines = current_traceback().splitlines()
    assert lines[0] == "Traceback (most recent call last):"
    assert lines[-2] == '    raise ValueError("no\\nmotor\\n")'
    assert re.fullmatch(rf"ValueError: no motor \({re.escape(__file__)}:\d+\)", lines[-1])


def test_an_error_of_many_lines_keeps_the_first_and_the_last() -> None:
    lines = [f"line {number}" for number in range(100_000)]
    assert short_error("\n".join(lines)).splitlines() == [lines[0], "  ...", *lines[-ERROR_LINES:]]


@pytest.mark.parametrize("details", [
    {"news": "x" * 11_000},
    {"news": "\x00\ud800" * 11_000},
    {f"name {number}": "y" * 500 for number in range(1000)},
    {"n" * 5000: 1},
    {"list": list(range(100_000))},
    {"array": np.zeros((84, 84))},
    {"object": Unprintable()},
    {"bytes": b"\xff" * 9000},
], ids=lambda details: next(iter(details))[:10])
def test_details_fit_whatever_they_are(details: dict[str, Any]) -> None:
    shown = short_details(details, 8192)
    assert len(json.dumps(shown)) <= 8192 + 200
    assert len(shown) <= MOST_NAMES + 1
    assert json.loads(json.dumps(shown)) == shown


def test_details_that_fit_stay_as_they_are() -> None:
    details = {"returns": [1.5, 2.0], "why": "ü", "none": None, "deep": {"a": [1, {"b": True}]}}
    assert short_details(details, 8192) == details
    assert short_details({"n": np.float32(1.5), "a": np.arange(2)}, 8192) == {"n": 1.5, "a": [0, 1]}
    circle: list[Any] = []
    circle.append(circle)
    assert short_details({"circle": circle}, 8192) == {"circle": "[[...]]"}


def test_numbers_that_json_does_not_know_are_none() -> None:
    nan, inf = float("nan"), float("inf")
    details = {"alpha": nan, "deep": {"a": [inf, 1.0]}, "array": np.array([-inf, 2.0])}
    shown = short_details(details, 8192)
    assert shown == {"alpha": None, "deep": {"a": [None, 1.0]}, "array": [None, 2.0]}
    shown = short_details({"many": [nan] * 4000}, 8192)
    assert len(json.dumps(shown, allow_nan=False)) <= 8192 + 200


def test_one_long_detail_does_not_cost_the_others() -> None:
    shown = short_details({"reason": "x" * 100_000, "faults": 3, "inputs": {"a": 1}}, 4096)
    assert (shown["faults"], shown["inputs"]) == (3, {"a": 1})
    assert shown["reason"].startswith("xxx")
