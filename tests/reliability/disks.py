"""A state directory on a disk that a test can fill up and make read-only.

Where mounting is permitted it is a small file system of its own. Where it is not, the processes
that write are limited to tiny files, and the directory loses its write permission, in which case
root must give up its capability to write all the same.
"""

from __future__ import annotations

import contextlib
import os
import resource
import stat
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from benchmarks.daemon import RunningDaemon

SIZE = 32 << 20
WRITERS = ("learner", "recorder")
UNPRIVILEGED = (
    "setpriv", "--bounding-set", "-dac_override,-dac_read_search", "--inh-caps",
    "-dac_override,-dac_read_search",
)


class MountedDisk:
    """A file system in memory.

    Attributes:
        folder: the state directory.
        full, read_only: what the system says to a writer then.
        under: what the daemon must be started under.
    """

    full = "No space left on device"
    read_only = "Read-only file system"
    under = ()

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._filler = folder / "filler"

    def fill(self, daemon: RunningDaemon | None = None) -> None:
        """Leave no room, for the processes of a daemon or for one that is started next."""
        descriptor = os.open(self._filler, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        with contextlib.suppress(OSError):
            while os.write(descriptor, bytes(4096)):
                pass
        os.close(descriptor)

    def free(self, daemon: RunningDaemon | None = None) -> None:
        """Give the room back."""
        self._filler.unlink()

    def forbid(self) -> None:
        """Make it read-only."""
        # Files that are open keep a file system from becoming read-only, but not a second mount.
        for command in (["--bind", str(self.folder)], ["-o", "remount,bind,ro"]):
            subprocess.run(["mount", *command, str(self.folder)], check=True)

    def allow(self) -> None:
        """Make it writable again."""
        subprocess.run(["umount", str(self.folder)], check=True)


class LimitedDisk:
    """Stands in for `MountedDisk`: a folder, and limits on the processes that write to it."""

    full = "File too large"
    read_only = "Permission denied"

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.under: Sequence[str] = UNPRIVILEGED if os.geteuid() == 0 else ()

    def fill(self, daemon: RunningDaemon | None = None) -> None:
        if daemon is None:
            self.under = ("prlimit", "--fsize=16:", *self.under)
        else:
            self._limit(daemon, 0)

    def free(self, daemon: RunningDaemon | None = None) -> None:
        if daemon is None:
            self.under = self.under[2:]
        else:
            self._limit(daemon, resource.RLIM_INFINITY)

    def forbid(self) -> None:
        self._permit(lambda mode: mode & ~0o222)

    def allow(self) -> None:
        self._permit(lambda mode: mode | stat.S_IWUSR)

    def _limit(self, daemon: RunningDaemon, size: int) -> None:
        for role in daemon.status()["roles"]:
            if role["role"] in WRITERS:
                _, hard = resource.prlimit(role["pid"], resource.RLIMIT_FSIZE)
                resource.prlimit(role["pid"], resource.RLIMIT_FSIZE, (size, hard))

    def _permit(self, change: Callable[[int], int]) -> None:
        for path in [self.folder, *self.folder.rglob("*")]:
            path.chmod(change(stat.S_IMODE(path.stat().st_mode)))


Disk = MountedDisk | LimitedDisk


@contextmanager
def disk(folder: Path) -> Iterator[Disk]:
    """The best disk that this machine permits, at a new folder."""
    folder.mkdir()
    size = ["-t", "tmpfs", "-o", f"size={SIZE},mode=700", "none"]
    mounted = subprocess.run(["mount", *size, str(folder)], capture_output=True, check=False)
    if mounted.returncode:
        yield LimitedDisk(folder)
        return
    try:
        yield MountedDisk(folder)
    finally:
        # A test that failed in between has left a second mount on top.
        while folder.is_mount():
            subprocess.run(["umount", "-l", str(folder)], check=True)
