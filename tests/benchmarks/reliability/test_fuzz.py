"""Hostile messages and files, a few of each kind: `rtagent bench fuzz` tries more."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from functools import partial
from pathlib import Path
from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from benchmarks.reliability import fuzz, fuzz_states, hostile
from benchmarks.reliability.fuzz_files import FILES
from benchmarks.reliability.fuzz_target import Target, Watch, each
from rtagent.env.gameboy.gambatte_machine import GameBoy
from rtagent.env.gameboy.machine import Snapshot

FEW = settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
ENDING = """
import socket
with socket.create_server(("127.0.0.1", 0)) as server:
    print(server.getsockname()[1], flush=True)
    witness = server.accept()[0]
    witness.sendall(b"telemetry")
    for other in [server.accept()[0] for _ in range(4)]:
        other.recv(1)
"""


@pytest.mark.parametrize("name", FILES)
def test_a_file_is_read_or_refused(name: str, tmp_path: Path) -> None:
    target = FILES[name]
    with target.open(tmp_path) as (make, use):

        @settings(FEW, max_examples=10 if name == "states" else 40)
        @given(st.integers(0, 2**32))
        def try_one(seed: int) -> None:
            (answer,) = use([make(Random(seed))], Watch())
            assert answer is None or isinstance(answer, target.refusal), answer

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


@pytest.mark.process
def test_a_simulator_that_ends_is_a_crash(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A client found nobody to connect to, and the benchmark ended with its traceback."""

    @contextlib.contextmanager
    def ending():  # type: ignore[no-untyped-def]
        command = [sys.executable, "-c", ENDING]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            yield process, int(process.stdout.readline())

    monkeypatch.setattr(fuzz, "running_simulator", ending)
    assert fuzz.simulator(0, 4000, 1, lambda done: None).crashes == 1
    assert capsys.readouterr().err.startswith("simulator ")


def test_an_example_is_named_by_its_number() -> None:
    for make in (hostile.to_simulator, hostile.picture):
        assert make(Random("0/x/5")) == make(Random("0/x/5")) != make(Random("0/x/6"))


def test_what_a_reader_stumbles_over_is_counted(capsys: pytest.CaptureFixture[str]) -> None:
    @contextlib.contextmanager
    def broken(folder: Path):  # type: ignore[no-untyped-def]
        yield lambda random: random.random(), partial(each, lambda value: {}["nothing"])

    target = Target("broken", broken, ValueError, at_once=2)
    result = fuzz.files(target, 7, 3, 0, lambda done: None)
    assert (result.tried, result.crashes, result.refused) == (3, 3, 0)
    assert "broken 7:" in capsys.readouterr().err


@pytest.mark.parametrize("let_through", [False, True])
def test_of_many_states_the_guilty_are_found(
    let_through: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def restore(machine: GameBoy, snapshot: Snapshot) -> None:
        if snapshot.state == b"bad":
            os.abort()
        real(machine, snapshot)

    real = GameBoy.restore
    monkeypatch.setattr(GameBoy, "restore", restore)
    monkeypatch.setattr(hostile, "mutated", lambda random, content: content)
    if let_through:
        monkeypatch.setattr(fuzz_states, "load_and_run", lambda machine, state: None)
    with FILES["states"].open(tmp_path) as (make, use):
        whole, watch = make(Random(0)), Watch()
        answers = use([whole, b"bad", b"none", whole, b"bad", whole], watch)
    assert [place for place, answer in enumerate(answers) if answer] == [1, 4]
    assert all(isinstance(answers[place], RuntimeError) == let_through for place in (1, 4))
    assert watch.longest > (0.0, 0.0)
