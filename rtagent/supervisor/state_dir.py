"""The state directory: held by one daemon at a time, and where clients find it.

It holds the token, so a user who can write there has control of the daemon. It must belong to the
user who runs the daemon, and no other user may write there; then nobody else can have put a link or
a file into it. What is opened there by name must all the same be no link (`O_NOFOLLOW`) and a plain
file: the directory may have been open to others before.

Why it is held by one daemon although it can be moved or removed. The lock belongs to what was
opened, not to the path. So a thread looks every second where the path leads; if that is not what is
held, it makes and locks what is there now. Another daemon may have been faster: then this run must
end, and write no more. The thread may hang with the disk, which the supervisor must not; so from
its start on nobody else uses what is held, and at the end it lets it go.
"""

from __future__ import annotations

import errno
import fcntl
import json
import logging
import os
import stat
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from rtagent.errors import UserError
from rtagent.files.atomic_write import atomic_write

NOTE = "daemon.json"
LOCK = "lock"
TRIES = 10
RETRY_S = 0.02
"""`is_held` takes the lock for an instant, so a daemon tries again."""
WATCH_EVERY_S = 1.0
RELEASE_LIMIT_S = 10.0
"""How long a disk may take until what is held is let go."""
_LONGEST_FILE = 4096

_log = logging.getLogger("rtagent")


class HeldByAnother(UserError):
    """Another daemon holds a state directory."""


class StateDir:
    """The state directory of a daemon, held until `release`.

    The lock is the kernel's (`flock`): it is free again when the daemon is gone, however it died.

    Args:
        path: made if absent.

    Raises:
        UserError: it cannot be made or written, others can write there, or another daemon holds it.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._released = threading.Event()
        self._watcher: threading.Thread | None = None
        self._descriptor = _hold(path)

    def watch(self, on_lost: Callable[[UserError], None]) -> None:
        """From now on see to it that the path leads to what is held, see above.

        Args:
            on_lost: called once, from a thread, if another daemon holds the path.
        """
        watcher = threading.Thread(
            target=self._watch_and_let_go, args=(on_lost,), name="state directory", daemon=True
        )
        watcher.start()
        self._watcher = watcher

    def _watch_and_let_go(self, on_lost: Callable[[UserError], None]) -> None:
        try:
            self._watch(on_lost)
        finally:
            self._released.wait()
            self._let_go()

    def _watch(self, on_lost: Callable[[UserError], None]) -> None:
        told = ""
        while not self._released.wait(WATCH_EVERY_S):
            try:
                self.keep()
            except HeldByAnother as error:
                on_lost(UserError(
                    f"{error}; it was moved or removed while this run wrote there, which has ended "
                    "without a last checkpoint, so that the two do not mix"
                ))
                return
            except UserError as error:
                # What is wrong may be mended.
                if str(error) != told:
                    told = str(error)
                    _log.error("%s", told)

    def keep(self) -> None:
        """Make and lock the path anew if what was held there has been moved or removed.

        Raises:
            HeldByAnother: another daemon holds it.
            UserError: it cannot be made or locked.
        """
        if self._released.is_set() or self._is_in_place():
            return
        descriptor, self._descriptor = self._descriptor, _hold(self.path)
        os.close(descriptor)
        _log.warning(
            "the state directory %s was moved or removed during the run; it is made anew, and "
            "clients do not find the daemon before its next start", self.path,
        )

    def _is_in_place(self) -> bool:
        """Whether the path leads to what is held, as far as the disk tells."""
        try:
            there = os.lstat(self.path / LOCK)
        except OSError as error:
            return error.errno not in (errno.ENOENT, errno.ENOTDIR)
        return os.path.samestat(os.fstat(self._descriptor), there)

    def announce(self, details: dict[str, Any]) -> None:
        """Write how to reach the daemon, for `rtagent status` and `set`.

        Raises:
            UserError: it cannot be written.
        """
        target = self.path / NOTE
        try:
            with atomic_write(target, f".{NOTE}-") as write:
                write(json.dumps(details).encode())
        except OSError as error:
            raise UserError(
                f"cannot write {target}: {error.strerror}; make room, or choose another state "
                "directory with --state-dir"
            ) from None

    def release(self) -> None:
        """Let another daemon have the directory, as soon as the disk answers."""
        self._released.set()
        if self._watcher is None:
            self._let_go()
        else:
            # Until it ends, it keeps all that can be reached from `on_lost`.
            self._watcher.join(RELEASE_LIMIT_S)

    def _let_go(self) -> None:
        # The disk may have become read-only. A client that finds the note asks `is_held`.
        with suppress(OSError):
            # The folder may have been moved away, and be another daemon's by now.
            if os.path.samestat(os.fstat(self._descriptor), os.lstat(self.path / LOCK)):
                (self.path / NOTE).unlink(missing_ok=True)
        # A fork of the program around a run has the descriptor, too, and may live on.
        with suppress(OSError):
            fcntl.flock(self._descriptor, fcntl.LOCK_UN)
        os.close(self._descriptor)


def is_held(path: Path) -> bool | None:
    """Whether a daemon holds a state directory, however it was started; None if unknown."""
    try:
        # Without O_NONBLOCK the open of a FIFO put there would wait for ever.
        flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOFOLLOW
        descriptor = os.open(path / LOCK, flags)
    except OSError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return None
    finally:
        os.close(descriptor)
    return False


def _hold(path: Path) -> int:
    """Make a state directory if it is absent, and lock it; the descriptor of the lock.

    Raises:
        HeldByAnother: another daemon holds it.
        UserError: it cannot be made or written, or others can write there.
    """
    try:
        path.mkdir(parents=True, exist_ok=True, mode=0o700)
        check_private(path)
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        descriptor = os.open(path / LOCK, flags, 0o600)
    except OSError as error:
        known = {errno.ELOOP: "its lock is a link", errno.EEXIST: "it is no folder"}
        reason = known.get(error.errno or 0, error.strerror)
        raise UserError(
            f"cannot use the state directory {path}: {reason}; choose another with --state-dir"
        ) from None
    try:
        _lock(descriptor)
    except BlockingIOError:
        os.close(descriptor)
        raise HeldByAnother(
            f"the state directory {path} is held by another daemon; stop it, or choose "
            "another with --state-dir"
        ) from None
    except OSError as error:
        os.close(descriptor)
        raise UserError(
            f"the state directory {path} cannot be locked: {error.strerror}; choose another "
            "with --state-dir"
        ) from None
    return descriptor


def _lock(descriptor: int) -> None:
    """Take the lock of a state directory.

    Raises:
        BlockingIOError: a daemon has it.
        OSError: the file system has no locks.
    """
    for _ in range(TRIES):
        with suppress(BlockingIOError):
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        time.sleep(RETRY_S)
    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)


def check_private(path: Path) -> None:
    """Refuse a directory that another user could have prepared.

    Raises:
        UserError: it belongs to another user, or others than its owner can write there.
        OSError: it cannot be looked at.
    """
    about = path.stat()
    if about.st_uid != os.geteuid():
        raise UserError(
            f"the state directory {path} belongs to another user (uid {about.st_uid}), who could "
            "have put a token there; choose another with --state-dir, or chown it"
        )
    check_unshared(path)


def check_trusted(path: Path) -> None:
    """As `check_private`, but root may look into the directories of other users."""
    (check_unshared if os.geteuid() == 0 else check_private)(path)


def check_unshared(path: Path) -> None:
    """Refuse a directory in which users other than its owner can write.

    Raises:
        UserError: they can.
        OSError: it cannot be looked at.
    """
    mode = stat.S_IMODE(path.stat().st_mode)
    if mode & 0o022:
        raise UserError(
            f"others can write into the state directory {path} (mode {mode:04o}), and could have "
            "put a token there; look into it, then `chmod go-w` it, or choose another with "
            "--state-dir"
        )


def read_private(
    path: Path, remedy: str, *, secret: bool = False, longest: int = _LONGEST_FILE
) -> bytes:
    """The first bytes of a file of a state directory, if the directory's owner has put it there.

    Args:
        remedy: what the user should do if another user has put it there.
        secret: whether other users must not be able to read it.
        longest: bytes that are read.

    Raises:
        UserError: it is a link or no plain file, belongs to another user than its directory, or is
            a secret that others can read.
        OSError: it cannot be read.
    """
    try:
        # Without O_NONBLOCK the open of a FIFO put there would wait for ever.
        flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOFOLLOW
        descriptor = os.open(path, flags)
    except OSError as error:
        if error.errno != errno.ELOOP:
            raise
        raise UserError(f"{path} is a link: {remedy}") from None
    with os.fdopen(descriptor, "rb") as file:
        about = os.fstat(descriptor)
        if not stat.S_ISREG(about.st_mode):
            raise UserError(f"{path} is not a file: {remedy}")
        if about.st_uid != path.parent.stat().st_uid:
            raise UserError(f"{path} belongs to another user (uid {about.st_uid}): {remedy}")
        if secret and about.st_mode & 0o077:
            raise UserError(
                f"{path} is open to other users (mode {stat.S_IMODE(about.st_mode):04o}): "
                f"{remedy}, or `chmod 600` it"
            )
        return file.read(longest)
