"""The state directory: held by one daemon at a time, and where clients find it."""

from __future__ import annotations

import fcntl
import json
import os
from contextlib import suppress
from pathlib import Path
from typing import Any

from rtagent.errors import UserError


class StateDir:
    """The state directory of a daemon, held until `release`.

    The lock is the kernel's (`flock`): it is free again when the daemon is gone, however it died.

    Args:
        path: made if absent.

    Raises:
        UserError: it cannot be made or written, or another daemon holds it.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            path.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._descriptor = os.open(path / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise UserError(
                f"cannot use the state directory {path}: {error.strerror}; choose another with "
                "--state-dir"
            ) from None
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(self._descriptor)
            raise UserError(
                f"the state directory {path} is held by another daemon; stop it, or choose "
                "another with --state-dir"
            ) from None

    def announce(self, details: dict[str, Any]) -> None:
        """Write how to reach the daemon, for `rtagent status` and `set`.

        Raises:
            UserError: it cannot be written.
        """
        target = self.path / "daemon.json"
        draft = target.with_suffix(".new")
        try:
            draft.write_text(json.dumps(details))
            draft.replace(target)
        except OSError as error:
            with suppress(OSError):
                draft.unlink()
            raise UserError(
                f"cannot write {target}: {error.strerror}; make room, or choose another state "
                "directory with --state-dir"
            ) from None

    def release(self) -> None:
        """Let another daemon have the directory."""
        # The disk may have become read-only; who finds the note then sees that the daemon is gone.
        with suppress(OSError):
            (self.path / "daemon.json").unlink(missing_ok=True)
        os.close(self._descriptor)
