"""What an error says, and where it was raised, for a message of one line."""

from __future__ import annotations

import json
import sysconfig
from pathlib import Path

import pytest

from rtagent.config import Config
from rtagent.errors import first_line, place_of, reason_of, typed_line


def raised(source: str, file: str) -> BaseException:
    """What a file of this text raises when it is run."""
    with pytest.raises((ArithmeticError, AssertionError, TypeError, ValueError)) as found:
        exec(compile(source, file, "exec"), {"loads": json.loads, "Config": Config})
    # The call above is this test's own.
    return found.value.with_traceback(found.tb.tb_next)


@pytest.mark.parametrize("source", ["\n1 / 0", "\nloads('{')", "\nConfig(7)"])
def test_the_place_is_in_the_users_code_wherever_it_was_raised(source: str) -> None:
    assert place_of(raised(source, "/home/ada/world.py")) == " (/home/ada/world.py:2)"


def test_else_it_is_in_an_installed_package_unless_the_error_tells() -> None:
    file = str(Path(sysconfig.get_path("purelib")) / "worlds" / "robot.py")
    assert place_of(raised("assert 1 == 2", file)) == f" ({file}:1)"
    assert place_of(raised("assert 1 == 2, 'no motor'", file)) == ""


def test_there_is_none_in_python_or_rtagent_alone() -> None:
    own = Path(place_of.__code__.co_filename)
    service = own.parents[1] / "service" / "process.py"
    for file in (json.__file__, "<frozen importlib>", str(own), str(service)):
        assert place_of(raised("1 / 0", file)) == ""
    assert place_of(ValueError("never raised")) == ""


@pytest.mark.parametrize(("error", "line", "typed"), [
    (ValueError("\n  no motor\nat all"), "no motor", "ValueError: no motor"),
    (KeyError(), "KeyError", "KeyError"), (ValueError(" \n"), "ValueError", "ValueError"),
])
def test_the_first_line_of_an_error_is_never_empty(error: Exception, line: str, typed: str) -> None:
    assert (first_line(error), typed_line(error)) == (line, typed)


def test_the_reason_of_an_error_of_the_system_has_no_number_and_no_file() -> None:
    assert reason_of(OSError(2, "No such file", "a")) == "No such file"
    assert reason_of(OSError("no viewer\nat all")) == "no viewer"
