"""Any Game Boy game: a user's cartridge, and a reward file that defines rewards and ends."""

from __future__ import annotations

import gzip
import io
import zlib
from collections.abc import Iterable, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rtagent.env.gameboy.emulators import switch_on
from rtagent.env.gameboy.environment import Frame, GameBoyEnv, Info, at_least_0
from rtagent.env.gameboy.key_script import SUFFIX, Keys, load_keys
from rtagent.env.gameboy.machine import BUTTON_NAMES, Snapshot
from rtagent.env.gameboy.rewards import Judge, Rules, Values, ended_by, load_rules
from rtagent.env.gameboy.rom_file import read_rom
from rtagent.env.gameboy.state_trial import check_states
from rtagent.env.observers import to_grey
from rtagent.errors import UserError
from rtagent.files.atomic_write import atomic_write
from rtagent.files.regular_file import read_regular

PAPER_ACTIONS = ("A", "B", "LEFT", "UP", "RIGHT", "DOWN", "NOOP")

MAX_STARTS = 1024
MAX_STATE_BYTES = 1 << 24
BOOT_FRAMES = 120
"""Longer than the emulators' own start: PyBoy's cartridge begins to run after 80 frames."""
FREE_PLAY: ContextVar[bool] = ContextVar("FREE_PLAY", default=False)
"""Whether an episode may be over at its start: for a person who plays on to another state."""


@dataclass(frozen=True)
class _Begin:
    """How to get from the boot to a start: by keys, by a state, or by nothing further."""

    name: str
    keys: Keys = field(default_factory=list)
    state: bytes = b""


class Game(GameBoyEnv):
    """A Game Boy game.

    Observation: uint8 (84, 84), grey levels. Actions: by default 0 A, 1 B, 2 LEFT, 3 UP, 4 RIGHT,
    5 DOWN, 6 NOOP. Reward and the end of an episode: as the reward file says; `info` holds its
    variables, and at the end `ended_by`, the name of the condition.

    Args:
        rom: file of the cartridge.
        rewards: reward file, see `rewards.py`; only `rtagent rom record --states` needs none.
        start: file of the state in which every episode begins, as `save_state` or the backend's own
            tools write it, or a script of keys, whose name ends in `.keys`, that leads to it (see
            `key_script.py`); or a folder of such files, among which `reset` picks. If empty,
            episodes begin after `boot_frames`.
        actions: for each action its buttons, such as `A`, `RIGHT+A` or `NOOP`.
        max_ticks: length at which an episode is truncated; 0: never.
        boot_frames: frames that the cartridge runs, without buttons, before the start.
        title: refuse a cartridge whose header has another title.
        sha1: refuse a cartridge with another hash.
        backend: `gambatte` or `pyboy`.
        render_mode: none or `rgb_array`.

    Raises:
        UserError: an argument is illegal, or a file is missing or not what it should be.
        RuntimeError: this process runs a gambatte core already.
    """

    _of_episode = ("_ticks", "_judge")

    def __init__(
        self, rom: str | Path = "", rewards: str | Path = "", start: str | Path = "",
        actions: Sequence[str] = PAPER_ACTIONS, max_ticks: int = 0, boot_frames: int = BOOT_FRAMES,
        title: str = "", sha1: str = "", backend: str = "gambatte", render_mode: str | None = None,
    ) -> None:
        buttons, meanings = _parse_actions(actions)
        super().__init__(buttons, meanings, max_ticks, render_mode)
        boot_frames = at_least_0("boot_frames", boot_frames)
        if () in buttons:
            self.noop_action = buttons.index(())
        # A person who only saves states needs no rewards.
        unrewarded = FREE_PLAY.get() and not rewards
        self._rules = Rules({}, {}, {}) if unrewarded else load_rules(_path("rewards", rewards))
        self._endless = not self._rules.done and not self._max_ticks
        cartridge = read_rom(_path("rom", rom))
        if title and cartridge.title != title:
            raise UserError(f"{rom} is called {cartridge.title!r}, expected {title!r}")
        if sha1 and cartridge.sha1 != str(sha1).lower():
            raise UserError(f"{rom}: sha1 expected {sha1}, found {cartridge.sha1}")
        self.cartridge = f"{cartridge.title} {cartridge.sha1}".strip()
        begins = _begins(_path("start", start)) if start else [_Begin("the start")]
        self._judge = Judge(self._rules)
        try:
            self._machine = switch_on(backend, cartridge.image)
        except ValueError as error:
            raise UserError(f"the emulator refuses the cartridge: {error}") from None
        try:
            self._run((), boot_frames)
            booted = self._machine.snapshot()
            check_states(self._machine, {each.name: each.state for each in begins if each.state})
            self._starts = [self._prepare(booted, each) for each in begins]
        except BaseException:
            self._machine.close()
            raise

    @property
    def starts(self) -> int:
        """The number of starts."""
        return len(self._starts)

    def take_news(self) -> list[str]:
        """A warning, once, if episodes never end."""
        endless, self._endless = self._endless, False
        warning = "its reward file has no [done] and max_ticks is 0: no episode ever ends"
        return [warning] if endless else []

    def reset(self, *, seed: int | None = None, options: Info | None = None) -> tuple[Frame, Info]:
        """Begin an episode at one of the starts.

        Args:
            seed: decides which starts are taken from now on.
            options: `start`: the number of the start that is taken now, from 0, in the order of
                the files' names.

        Returns:
            The first frame, and the variables of the reward file.

        Raises:
            UserError: there is no such start.
        """
        super().reset(seed=seed)
        number = (options or {}).get("start")
        if number is None:
            number = int(self.np_random.integers(self.starts))
        elif number not in range(self.starts):
            raise UserError(f"start = {number!r}: expected 0 to {self.starts - 1}")
        self._machine.restore(self._starts[number])
        self._ticks = 0
        values = self._values()
        self._judge.begin(values)
        return to_grey(self._machine.screen()), _info(values)

    def _judged(self) -> tuple[float, bool, Info]:
        values = self._values()
        reward, ended_by = self._judge.step(values)
        info = _info(values)
        if ended_by:
            info["ended_by"] = ended_by
        return reward, bool(ended_by), info

    def save_state(self, path: Path) -> None:
        """Write the machine's state, for `env.kwargs.start`; OSError if it cannot be written."""
        with atomic_write(path, ".state-") as write:
            write(gzip.compress(self._machine.snapshot().state, mtime=0))

    def check_begun(self, at: str = "the start") -> None:
        """Raise a UserError if an episode that began now would be over at once."""
        values = self._values()
        over = ended_by(self._rules, values, values)
        if over:
            raise UserError(
                f"the episode is over before it begins: done.{over} holds at {at}; give a state in "
                "the middle of the game, or keys that lead there, as env.kwargs.start"
            )

    def _prepare(self, booted: Snapshot, begin: _Begin) -> Snapshot:
        self._machine.restore(booted)
        for frames, buttons, _ in begin.keys:
            self._run(buttons, frames)
        self._machine.press()
        if begin.state:
            try:
                self._machine.restore(Snapshot(begin.state, self._machine.screen()))
            except ValueError:
                raise UserError(
                    f"{begin.name} is no state of this cartridge on this backend"
                ) from None
            # A state holds no picture.
            self._machine.step()
        for name, variable in self._rules.variables.items():
            try:
                variable.read(self._machine.ram.u8)
            except IndexError:
                raise UserError(
                    f"variables.{name} of the reward file lies at {variable.address:#x} to "
                    f"{variable.last:#x}, where this cartridge has no memory that can be read"
                ) from None
        if not FREE_PLAY.get():
            self.check_begun(begin.name)
        return self._machine.snapshot()

    def _values(self) -> Values:
        return self._rules.read(self._machine.ram.u8)


def _info(values: Values) -> Info:
    """The variables by name, a number or, of an array, a tuple."""
    return {name: each[0] if len(each) == 1 else each for name, each in values.items()}


def _begins(path: Path) -> list[_Begin]:
    try:
        paths = sorted(path.iterdir()) if path.is_dir() else [path]
    except OSError as error:
        raise UserError(f"cannot read the starts {path}: {error.strerror}") from None
    paths = [each for each in paths if each == path or not each.name.startswith(".")]
    if not 0 < len(paths) <= MAX_STARTS:
        raise UserError(f"{len(paths)} starts in {path}: expected 1 to {MAX_STARTS}")
    return [
        _Begin(str(each), load_keys(each)) if each.suffix == SUFFIX
        else _Begin(str(each), state=read_state(each)) for each in paths
    ]


def read_state(path: Path) -> bytes:
    """The unpacked content of a saved state, or a UserError."""
    try:
        content = read_regular(path, MAX_STATE_BYTES)
        if content[:2] == b"\x1f\x8b":
            with gzip.open(io.BytesIO(content)) as packed:
                content = packed.read(MAX_STATE_BYTES + 1)
    except (EOFError, zlib.error, gzip.BadGzipFile):
        raise UserError(f"the start {path} is damaged") from None
    except OSError as error:
        raise UserError(f"cannot read the start {path}: {error.strerror}") from None
    if not 0 < len(content) <= MAX_STATE_BYTES:
        raise UserError(f"the start {path} is no state of a Game Boy: its size is wrong")
    return content


def _parse_actions(actions: Sequence[str]) -> tuple[tuple[tuple[str, ...], ...], tuple[str, ...]]:
    if isinstance(actions, str) or not isinstance(actions, Iterable) or len(actions) < 2:
        raise UserError(f"env.kwargs.actions = {actions!r}: expected a list of two or more actions")
    buttons = tuple(_buttons_of(action) for action in actions)
    if len({frozenset(each) for each in buttons}) < len(buttons):
        raise UserError(f"env.kwargs.actions = {list(actions)!r}: two of them are the same")
    return buttons, tuple("+".join(each) or "NOOP" for each in buttons)


def _buttons_of(action: Any) -> tuple[str, ...]:
    if action == "NOOP":
        return ()
    names = tuple(action.split("+")) if isinstance(action, str) else ()
    if not names or any(each not in BUTTON_NAMES for each in names):
        raise UserError(
            f"env.kwargs.actions: {action!r} is no action; expected NOOP, or buttons joined by +: "
            f"{', '.join(BUTTON_NAMES)}"
        )
    return names


def _path(name: str, value: str | Path) -> Path:
    if not isinstance(value, str | Path) or not str(value) or "\0" in str(value):
        raise UserError(
            f"env.kwargs.{name} = {value!r}: a file is needed; such as env.kwargs = "
            '{rom="game.gb", rewards="game.toml"}'
        )
    return Path(value).expanduser()
