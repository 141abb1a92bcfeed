"""What commands print, and what others print meanwhile."""

from __future__ import annotations

import io
import json
import math
from pathlib import Path

import pytest
from rich.console import Console

from rtagent.cli import main, output
from rtagent.cli.output import known_reward, percent, plain_table, rounded, spinner, stdout
from rtagent.logs.printable import printable

LOUD = """
import os
import gymnasium

def world():
    print("from Python")
    os.write(1, b"from a library\\n")
    return gymnasium.make("CartPole-v1")
"""


@pytest.mark.parametrize(
    ("value", "digits", "text"),
    [
        (234.5, 2, "230"), (0.123456, 4, "0.1235"), (-0.00001234, 2, "-0.000012"),
        (1234567.0, 4, "1235000"), (3.0, 4, "3"), (None, 2, "unknown"),
        (float("inf"), 2, "unknown"),
    ],
)
def test_a_rounded_number_has_no_exponent(value: float | None, digits: int, text: str) -> None:
    assert rounded(value, digits) == text


@pytest.mark.parametrize(("value", "text"), [
    (None, "unknown"), (math.nan, "unknown"), (math.inf, "unknown"), (0.0, "0.00"), (-0.0, "0.00"),
    (0.0042, "0.0042"), (-0.034, "-0.034"), (-0.1, "-0.10"), (21.5, "21.50"), (-200.0, "-200.00"),
    (-1.234e30, "-1.23e+30"),
])
def test_a_small_return_is_not_nothing_and_nothing_has_no_sign(
    value: float | None, text: str
) -> None:
    assert known_reward(value) == text


def test_what_an_environment_prints_is_not_mixed_into_the_result(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "loud_world.py").write_text(LOUD)
    monkeypatch.syspath_prepend(tmp_path)
    options = ("--update-ms", "20", "--inference-ms", "1", "--seconds", "1", "--json")
    assert main(["simulate", "--env", "loud_world:world", *options]) == 0
    out, err = capfd.readouterr()
    assert json.loads(out)["ticks"] == 50
    for printed in ("from Python", "from a library"):
        assert printed in err


@pytest.mark.parametrize("name", ["a[/x].onnx", "a[red].onnx", "a:smile:.onnx", "a\x1b[2J.onnx"])
def test_names_beside_a_spinner_are_no_markup(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """An export to a file of such a name ended with a traceback."""
    console = Console(file=io.StringIO(), force_terminal=True, width=80)
    monkeypatch.setattr(output, "stderr", lambda: console)
    with spinner(f"exporting to {name}") as change:
        change(f"exporting to {name}")
    assert f"exporting to {printable(name)}" in console.file.getvalue()


def test_a_spinner_takes_no_character_that_a_terminal_may_lack(
    monkeypatch: pytest.MonkeyPatch
) -> None:
    """An ASCII terminal was shown \\u280b, \\u2819 and so on."""
    console = Console(file=io.StringIO(), force_terminal=True, width=80)
    monkeypatch.setattr(output, "stderr", lambda: console)
    with spinner("starting"):
        pass
    assert "starting" in console.file.getvalue()
    assert console.file.getvalue().isascii()


def test_a_pipe_gets_a_line_for_each_row(capsys: pytest.CaptureFixture[str]) -> None:
    stdout().print(plain_table("file", "what", rows=[("f" * 200, "long"), ("f", "")]))
    heading, *lines = capsys.readouterr().out.splitlines()
    assert heading.split() == ["file", "what"]
    assert lines == [f"{'f' * 200}  long", "f"]


def test_a_terminal_gets_rows_that_fit_it() -> None:
    console = Console(file=io.StringIO(), force_terminal=True, width=10)
    console.print(plain_table("", "", rows=[("f" * 12, "what")]))
    assert console.file.getvalue() == "ffff  what\nffff\nffff\n"


@pytest.mark.parametrize(
    ("share", "text"),
    [(0.0, "0.00%"), (3e-6, "0.01%"), (0.0125, "1.25%"), (0.999997, "99.99%"), (1.0, "100.00%"),
     (None, "unknown"), (float("nan"), "unknown")],
)
def test_nearly_nothing_is_not_nothing_nor_nearly_all_all(share: float | None, text: str) -> None:
    assert percent(share) == text
