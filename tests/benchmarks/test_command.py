"""The command line that all benchmarks share."""

from __future__ import annotations

import json

import pytest

from benchmarks.command import command_line, report


@pytest.mark.parametrize("wrong", [["--nothing"], ["--seconds", "x"]])
def test_bad_input_is_one_line_that_names_the_command(
    wrong: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["/checkout/benchmarks/acting/chunks.py", *wrong])
    parser = command_line("Chunks.")
    parser.add_argument("--seconds", type=float)
    with pytest.raises(SystemExit) as ended:
        parser.parse_args()
    assert ended.value.code == 2
    said = capsys.readouterr().err
    assert said.startswith("rtagent bench chunks: ")
    assert wrong[-1] in said
    assert said.endswith(" (see rtagent bench chunks --help)\n")
    assert said.count("\n") == 1


def test_a_figure_that_json_cannot_hold_is_null(capsys: pytest.CaptureFixture[str]) -> None:
    report({"latency_ms": [1.0, float("inf")], "passed": True}, True, print)
    assert json.loads(capsys.readouterr().out) == {"latency_ms": [1.0, None], "passed": True}
