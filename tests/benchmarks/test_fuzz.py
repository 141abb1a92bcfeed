"""Hostile messages and files, a few of each kind: `python -m benchmarks.fuzz` tries more."""

from __future__ import annotations

import contextlib
from pathlib import Path
from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from benchmarks import fuzz, hostile
from benchmarks.fuzz_targets import FILES

FEW = settings(
    deadline=None, max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


@pytest.mark.parametrize("name", FILES)
def test_a_file_is_read_or_refused(name: str, tmp_path: Path) -> None:
    target = FILES[name]
    with target.open(tmp_path) as (make, use):

        @settings(FEW, max_examples=10 if name == "states" else 40)
        @given(st.integers(0, 2**32))
        def try_one(seed: int) -> None:
            with contextlib.suppress(target.refusal):
                use(make(Random(seed)))

        try_one()


def test_a_hostile_simulator_is_heard_out() -> None:
    result = fuzz.client(0, 4000, 1, lambda done: None)
    assert result.tried == 4000
    assert result.crashes == 0
    assert result.longest_cpu_s < fuzz.LONGEST_STALL_S


@pytest.mark.process
def test_hostile_clients_end_nothing() -> None:
    result = fuzz.simulator(0, 4000, 1, lambda done: None)
    assert result.tried == 4000
    assert result.crashes == 0


def test_an_example_is_named_by_its_number() -> None:
    for make in (hostile.to_simulator, hostile.picture):
        assert make(Random("0/x/5")) == make(Random("0/x/5")) != make(Random("0/x/6"))


def test_what_a_reader_stumbles_over_is_counted(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    @contextlib.contextmanager
    def broken(folder: Path):  # type: ignore[no-untyped-def]
        yield lambda random: random.random(), lambda value: {}["nothing"]

    target = fuzz.Target("broken", broken, ValueError)
    result = fuzz.files(target, 7, 3, 0, lambda done: None)
    assert (result.tried, result.crashes, result.refused) == (3, 3, 0)
    assert "broken 7:" in capsys.readouterr().err
