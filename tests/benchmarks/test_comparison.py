"""What comparisons share: contenders, and runs side by side."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import pytest

from benchmarks.comparison import figures_of_all, processes_of
from benchmarks.experiment import outcomes
from tests.forked import LIMIT_S, eventually

HANGING = """
import os, time
from functools import partial
from benchmarks.experiment import outcomes
from tests.benchmarks.test_comparison import hang

if __name__ == "__main__":
    list(outcomes({"a": partial(hang, os.environ["TOLD"])}, 1))
"""


def hang(told: str) -> None:
    path = Path(told)
    path.with_suffix(".new").write_text(str(os.getpid()))
    path.with_suffix(".new").rename(path)
    time.sleep(600)


def fail(reason: str) -> int:
    raise ValueError(reason)


@pytest.mark.parametrize(("ticks", "processes"), [(0.5, 1), (2, 3), (5, 6), (10, 11), (30, 33)])
def test_the_latency_decides_how_many_processes_are_staggered(ticks, processes):
    assert processes_of("staggered", ticks) == processes
    assert processes_of("sequential", ticks) == 1


@pytest.mark.process
def test_a_run_that_fails_is_told_and_the_others_are_kept():
    calls = {"one": partial(abs, -3), "two": partial(fail, "no world"), "three": partial(abs, -4)}
    found = dict(outcomes(calls, at_once=2))
    assert repr(found.pop("two")) == "ValueError('no world')"
    assert found == {"one": 3, "three": 4}
    # The reason of a trial that has failed is kept in its results.
    with pytest.raises(RuntimeError, match=r"^two failed: ValueError: no world$"):
        figures_of_all({"one": partial(dict, a=1), "two": partial(fail, "no world")})
    both = {"one": partial(dict, a=1), "two": partial(dict, b=2)}
    assert figures_of_all(both) == {"a": 1, "b": 2}


@pytest.mark.process
def test_runs_end_with_the_program_that_began_them(tmp_path):
    script, told = tmp_path / "compare.py", tmp_path / "pid"
    script.write_text(HANGING)
    root = Path(__file__).parents[2]
    environ = {**os.environ, "PYTHONPATH": str(root), "TOLD": str(told)}
    program = subprocess.Popen([sys.executable, str(script)], env=environ, cwd=root)
    assert eventually(told.exists)
    run = os.pidfd_open(int(told.read_text()))
    program.send_signal(signal.SIGKILL)
    program.wait()
    try:
        ended, _, _ = select.select([run], [], [], LIMIT_S)
    finally:
        os.close(run)
    assert ended
