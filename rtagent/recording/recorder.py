"""Files made from play: states, and a demonstration."""

from __future__ import annotations

import re
import tempfile
from pathlib import Path

from rtagent.errors import UserError
from rtagent.recording.player import Player
from rtagent.recording.tape import Tape
from rtagent.storage.demonstration_file import SUFFIX

STATE_SUFFIX = ".state"


class Recorder:
    """Saves states and records a demonstration of what is played.

    Args:
        player: plays the environment.
        name: beginning of the names of states.
        states: folder of the states, as `states_folder` gives it. If None, none are saved.
        demonstration: file of the demonstration. If None, none is recorded.

    Raises:
        UserError: a folder of states is given, and the environment has no states.
    """

    def __init__(
        self, player: Player, name: str, states: Path | None, demonstration: Path | None
    ) -> None:
        if states is not None and not player.has_states:
            raise UserError(
                f"--states: {player.environment} begins at no saved states; its demonstrations can "
                "be recorded"
            )
        self.player = player
        self.tape = Tape(player.environment, player.action_meanings, player.cartridge)
        self.saved: list[Path] = []
        self.demonstration = demonstration
        self._name = name
        self._states = states
        self._written = 0

    @property
    def keeps_states(self) -> bool:
        """Whether states can be saved."""
        return self._states is not None

    @property
    def recording(self) -> bool:
        """Whether episodes are being recorded."""
        return self.player.tape is not None

    def start(self) -> None:
        """Begin a new episode, and record from there on.

        Raises:
            UserError: no file is given, the file is full, or an episode cannot begin.
        """
        if self.demonstration is None:
            raise UserError("there is no file to record to: --demonstration FILE.demo names one")
        if self.tape.full:
            raise UserError(f"{self.demonstration} is full: it has {self.tape.ticks} ticks")
        self.player.tape = self.tape
        try:
            self.player.restart()
        except UserError:
            self.player.tape = None
            raise

    def stop(self) -> None:
        """Stop recording, and write all that was recorded.

        Raises:
            UserError: the file cannot be written; nothing is lost, and the next `stop` tries again.
        """
        self.player.tape = None
        self.tape.cut()
        if self.demonstration is not None and self.tape.ticks > self._written:
            self.tape.save(self.demonstration)
            self._written = self.tape.ticks

    def save_state(self) -> Path:
        """Save the game's state, under the next number.

        Raises:
            UserError: no folder is given, or the file cannot be written.
        """
        if self._states is None:
            raise UserError("there is no folder for states: --states DIR names one")
        path = next_state(self._states, self._name)
        self.player.save_state(path)
        self.saved.append(path)
        return path


def states_folder(path: Path) -> Path:
    """The folder of the states, made if absent.

    Raises:
        UserError: no file can be written into it.
    """
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"--states {path}: {error.strerror}") from None
    _check_writable(path, f"--states {path}")
    return path


def demonstration_file(path: Path, *, replace: bool) -> Path:
    """The path of the demonstration, whose file is not written yet.

    Args:
        path: as the user gave it.
        replace: whether a file at this path may be overwritten.

    Raises:
        UserError: it does not end in `.demo`, is taken, or cannot be written.
    """
    if path.suffix != SUFFIX:
        raise UserError(f"--demonstration {path}: its name has to end in {SUFFIX}")
    if path.is_dir() or (path.exists() and not replace):
        hint = "is a folder" if path.is_dir() else "is there; --replace overwrites it"
        raise UserError(f"--demonstration {path} {hint}")
    _check_writable(path.parent, f"--demonstration {path}")
    return path


def next_state(folder: Path, name: str) -> Path:
    """The path NAME-NUMBER.state of the next state; numbers begin at 0001.

    Raises:
        UserError: the folder cannot be read.
    """
    pattern = re.compile(re.escape(name) + r"-(\d{1,9})" + re.escape(STATE_SUFFIX))
    try:
        matches = [pattern.fullmatch(each.name) for each in folder.iterdir()]
    except OSError as error:
        raise UserError(f"cannot read the states in {folder}: {error.strerror}") from None
    newest = max((int(match[1]) for match in matches if match), default=0)
    return folder / f"{name}-{newest + 1:04d}{STATE_SUFFIX}"


def _check_writable(folder: Path, what: str) -> None:
    """Find out before the game, rather than after it, that no file can be written."""
    try:
        tempfile.TemporaryFile(dir=folder).close()
    except OSError as error:
        raise UserError(f"{what}: {error.strerror}") from None
