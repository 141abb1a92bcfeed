"""Damaged save states, against the trial that users' states go through.

The trial judges many states in one process. A state that it lets through must not end the emulator
later either, so it is played for ten seconds. It is compared with the undamaged machine at the same
frame: where only the game's own memory differs, the emulator is in a state that the game itself
leads to, and only one in `TO_THE_END` such states is played on.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from benchmarks.reliability import hostile
from benchmarks.reliability.fuzz_target import Make, Use, Watch
from rtagent.env.gameboy import state_trial
from rtagent.env.gameboy.gambatte_machine import GameBoy
from rtagent.env.gameboy.machine import Machine, Snapshot
from rtagent.env.gameboy.rom import BUNDLED
from rtagent.env.gameboy.state_trial import harmful, load_and_run
from rtagent.errors import UserError

AT_ONCE = 200
BOOT_FRAMES = 300
FRAMES_PLAYED = 600
"""Frames played from a state that was let through."""
COMPARED = (1, 2, 5, 20, 60)
"""Frames after which it is compared."""
TO_THE_END = 50
"""One in this many states is played to the end, whatever the comparison says."""
GAME_MEMORY = (b"vram\0", b"wram\0")
"""Labels in a state of gambatte; each is followed by the length, three bytes, and the content."""


@contextmanager
def states(folder: Path) -> Iterator[tuple[Make, Use]]:
    """The target, see `Target.open`."""
    machine = GameBoy((BUNDLED / "starfall" / "starfall.gb").read_bytes())
    for _ in range(BOOT_FRAMES):
        machine.step()
    start = machine.snapshot()
    usual = state_trial.LONGEST_S
    # A state that hangs hangs for ever: one second shows it as well as five.
    state_trial.LONGEST_S = 1.0
    try:
        play = _Play(machine)
        machine.restore(start)
        yield lambda random: hostile.mutated(random, start.state), play.judge
    finally:
        state_trial.LONGEST_S = usual
        machine.close()


class _Play:
    """The undamaged machine from its start on, and the states that are compared with it."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._whole: dict[int, bytes] = {}
        for frame in range(1, max(COMPARED) + 1):
            machine.step()
            if frame in COMPARED:
                self._whole[frame] = _own(machine.snapshot().state)

    def judge(self, examples: Sequence[bytes], watch: Watch) -> list[Exception | None]:
        """The answer to each example, see `Use`."""
        answers: list[Exception | None] = [None] * len(examples)

        def load(machine: Machine, state: bytes) -> None:
            with watch.timing():
                load_and_run(machine, state)

        for places, fault in harmful(self._machine, examples, load):
            answers[places[-1]] = UserError(fault)
        left = [place for place, answer in enumerate(answers) if answer is None]
        for places, fault in harmful(self._machine, [examples[each] for each in left], self._on):
            answers[left[places[-1]]] = RuntimeError(f"after it was let through, {fault}")
        return answers

    def _on(self, machine: Machine, state: bytes) -> None:
        try:
            machine.restore(Snapshot(state, machine.screen()))
        except ValueError:
            return
        to_the_end = zlib.crc32(state) % TO_THE_END == 0
        for frame in range(1, FRAMES_PLAYED + 1):
            machine.step()
            if (
                frame in self._whole and not to_the_end
                and _own(machine.snapshot().state) == self._whole[frame]
            ):
                return
        machine.snapshot()
        machine.screen()


def _own(state: bytes) -> bytes:
    """The emulator's part of a state: without the game's memory."""
    for label in GAME_MEMORY:
        before, _, after = state.partition(label)
        state = before + after[3 + int.from_bytes(after[:3], "big") :]
    return state
