"""A damaged state harms only a throw-away process."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import cast

import numpy as np
import pytest

from rtagent.env.gameboy import state_trial
from rtagent.env.gameboy.gambatte_machine import GameBoy
from rtagent.env.gameboy.game import BOOT_FRAMES, Game
from rtagent.env.gameboy.machine import Machine, Snapshot
from rtagent.env.gameboy.pyboy_machine import PyBoyMachine
from rtagent.env.gameboy.rom_file import padded
from rtagent.env.gameboy.state_trial import check_states, harmful
from rtagent.errors import UserError
from tests.cartridges import REWARDS, ROM


@pytest.fixture
def machine() -> Iterator[GameBoy]:
    running = GameBoy(ROM.read_bytes())
    for _ in range(BOOT_FRAMES):
        running.step()
    yield running
    running.close()


def crashing(state: bytes) -> bytes:
    """The first field is longer than the state: gambatte would read on behind the end."""
    return state[:7] + b"\x7f" + state[8:]


def incomplete(state: bytes) -> bytes:
    """A field has another name: gambatte would take its value from uninitialised memory."""
    return state.replace(b"ltimaup\0", b"xtimaup\0")


def hanging(state: bytes) -> bytes:
    """A time in the past, up to which gambatte goes on counting."""
    at = state.index(b"lodmaup\0") + len(b"lodmaup\0") + 3
    return state[:at] + 4 * b"\x80" + state[at + 4 :]


def test_whole_states_leave_the_machine_as_it_was(machine: GameBoy) -> None:
    before = machine.snapshot()
    # The functions above do change such a state.
    assert len(hanging(before.state)) == len(crashing(before.state)) == len(before.state)
    machine.step()
    here = machine.snapshot()
    check_states(machine, {"a": before.state, "b": here.state})
    assert machine.snapshot().state == here.state
    np.testing.assert_array_equal(machine.screen(), here.picture)


def test_what_the_machine_refuses_itself_is_left_to_it(machine: GameBoy) -> None:
    check_states(machine, {"a": b"none"})


@pytest.mark.parametrize("damage", [
    crashing, incomplete, lambda state: b"", lambda state: state[:-1], lambda state: state + b"\0",
])
def test_gambatte_reads_only_states_with_all_fields(
    damage: Callable[[bytes], bytes], machine: GameBoy
) -> None:
    whole = machine.snapshot()
    assert damage(whole.state) != whole.state
    with pytest.raises(ValueError, match="not taken from this cartridge"):
        machine.restore(Snapshot(damage(whole.state), whole.picture))
    machine.restore(whole)


def test_the_state_that_does_harm_is_named(
    machine: GameBoy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(state_trial, "LONGEST_S", 0.3)
    good = machine.snapshot().state
    with pytest.raises(UserError, match=r"the start second is damaged.*the emulator hangs"):
        check_states(machine, {"first": good, "second": hanging(good)})
    machine.step()


class Waiting:
    """A machine that waits instead of computing."""

    def restore(self, snapshot: Snapshot) -> None:
        time.sleep(0.1)

    def step(self) -> None: ...

    def screen(self) -> bytes:
        return b""

    snapshot = screen


@pytest.mark.parametrize(("patience", "faults"), [(200, []), (1, ["the emulator hangs"])])
def test_a_busy_machine_is_no_emulator_that_hangs(
    patience: int, faults: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(state_trial, "LONGEST_S", 0.05)
    monkeypatch.setattr(state_trial, "PATIENCE", patience)
    assert [fault for _, fault in harmful(cast(Machine, Waiting()), [b""])] == faults


def ends(*deadly: bytes) -> state_trial.Play:
    """A way to play that ends the process once all of these states were played in it."""
    met = set()

    def play(machine: Machine, state: bytes) -> None:
        met.add(state)
        if met.issuperset(deadly):
            os.abort()

    return play


@pytest.mark.parametrize(("deadly", "found"), [
    ([b"a"], [[0]]), ([b"c"], [[2]]), ([b"d"], [[3]]), ([b"a", b"c"], [range(3)]), ([b"x"], []),
])
def test_those_that_end_a_process_are_found_among_many(
    machine: GameBoy, deadly: list[bytes], found: list[list[int]]
) -> None:
    assert [places for places, _ in harmful(machine, [b"a", b"b", b"c", b"d"], ends(*deadly))
            ] == found


def test_states_that_do_harm_together_are_named_together(
    machine: GameBoy, monkeypatch: pytest.MonkeyPatch
) -> None:
    together = [(range(2), "the emulator crashes")]
    monkeypatch.setattr(state_trial, "harmful", lambda machine, states: together)
    with pytest.raises(UserError, match="first, second"):
        check_states(machine, {"first": b"", "second": b""})


def test_who_is_interrupted_leaves_no_process(
    machine: GameBoy, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.waitpid
    children = []

    def interrupted(pid: int, options: int) -> tuple[int, int]:
        children.append(pid)
        monkeypatch.setattr(os, "waitpid", real)
        signal.raise_signal(signal.SIGINT)
        return real(pid, options)

    monkeypatch.setattr(os, "waitpid", interrupted)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            check_states(machine, {"a": hanging(machine.snapshot().state)})
    finally:
        signal.signal(signal.SIGINT, before)
    with pytest.raises(ChildProcessError):
        real(children[0], os.WNOHANG)


def test_a_game_does_not_start_from_a_state_that_does_harm(
    machine: GameBoy, tmp_path: Path
) -> None:
    state = machine.snapshot().state
    machine.close()
    rewards, start = tmp_path / "rewards.toml", tmp_path / "bad.state"
    rewards.write_text(REWARDS)
    start.write_bytes(crashing(state))
    with pytest.raises(UserError, match=r"bad\.state is no state of this cartridge"):
        Game(ROM, rewards, start=start)
    # A state of the other emulator is refused, too, and does not hang this one.
    start.write_bytes(state)
    with pytest.raises(UserError, match="no state of this cartridge on this backend"):
        Game(ROM, rewards, start=start, backend="pyboy")


def test_pyboys_states_are_tried_too(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = PyBoyMachine(padded(ROM.read_bytes()))
    state = machine.snapshot().state
    check_states(machine, {"a": state})
    monkeypatch.setattr(PyBoyMachine, "restore", lambda of, it: os.kill(os.getpid(), 11))
    with pytest.raises(UserError, match="crashes"):
        check_states(machine, {"a": state})
    machine.close()


def test_a_small_cartridge_runs_on_both(tmp_path: Path) -> None:
    """The game would fail where it needs the part left out; but it starts."""
    small, rewards = tmp_path / "small.gb", tmp_path / "rewards.toml"
    small.write_bytes(ROM.read_bytes()[:0x4000])
    rewards.write_text(REWARDS.replace("value = 2", "value = 77"))
    for backend in ("gambatte", "pyboy"):
        game = Game(small, rewards, backend=backend)
        assert game.reset()[0].shape == (84, 84)
        game.close()
