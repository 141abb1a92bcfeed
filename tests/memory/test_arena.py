"""Arenas: shared, nameless, gone with their owner, and honest about a lack of memory."""

from __future__ import annotations

import ctypes
import errno
import os
import pickle
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from rtagent.errors import UserError
from rtagent.memory import arena as arena_module
from rtagent.memory.arena import (
    FALLOCATE_STEP,
    PAGE,
    Arena,
    ArenaHandle,
    available_memory,
    check_memory,
)
from rtagent.memory.usage import Level
from rtagent.processes import scheduling
from tests.conftest import open_descriptors
from tests.forked import Forked, eventually, forked_children
from tests.limited import limited
from tests.refused import one_line

BIG = 64 << 20
PR_SET_DUMPABLE = 4


def meminfo(name: str) -> int:
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith(name + ":"):
            return int(line.split()[1]) * 1024
    raise KeyError(name)


@pytest.mark.process
def test_handle_maps_in_another_process(make_arena: Callable[..., Arena], forked: Forked) -> None:
    arena = make_arena(100)
    # As it travels to a worker.
    text = pickle.dumps(arena.handle)

    def write() -> None:
        pickle.loads(text).map()[:5] = b"hello"

    assert forked.run(write) == 0
    assert arena.handle.map()[:5] == b"hello"


def test_size_is_whole_pages(make_arena: Callable[..., Arena]) -> None:
    assert make_arena(1).size == PAGE
    assert make_arena(PAGE + 1).size == 2 * PAGE


def test_mapping_outlives_the_descriptor() -> None:
    arena = Arena("test", PAGE)
    mapping = arena.handle.map()
    arena.close()
    arena.close()
    mapping[:2] = b"ok"
    assert mapping[:2] == b"ok"


def test_no_name_is_left(make_arena: Callable[..., Arena]) -> None:
    before = set(os.listdir("/dev/shm"))
    arena = make_arena(PAGE)
    arena.handle.map()[:1] = b"x"
    assert not [name for name in set(os.listdir("/dev/shm")) - before if "rtagent" in name]


@pytest.mark.process
@pytest.mark.alone
def test_memory_is_free_after_the_owner_is_killed(
    make_arena: Callable[..., Arena], forked: Forked
) -> None:
    told = make_arena(PAGE)
    note = told.handle.map()

    def own() -> None:
        arena = Arena("owned", BIG)
        mapping = arena.handle.map()
        mapping[:1] = b"x"
        note[:8] = arena.descriptor.to_bytes(8, "little")
        signal.pause()

    def grows_and_shrinks() -> bool:
        note[:8] = bytes(8)
        before = meminfo("Shmem")
        pid = forked.start(own)
        assert eventually(lambda: any(note[:8]))
        handle = ArenaHandle(pid, int.from_bytes(note[:8], "little"), BIG)
        held = meminfo("Shmem")
        forked.kill(pid)
        with pytest.raises(FileNotFoundError):
            handle.map()
        freed = eventually(lambda: held - meminfo("Shmem") > BIG // 2, 30.0)
        return freed and held - before > BIG // 2

    # Other programs use shared memory, too: less of it counts, and they may spoil an attempt.
    assert any(grows_and_shrinks() for _ in range(2))


def test_sparse_arena_reserves_what_it_is_asked_to(make_arena: Callable[..., Arena]) -> None:
    arena = make_arena(4 * FALLOCATE_STEP, sparse=True)
    assert arena.held == 0
    arena.reserve(PAGE - 1, PAGE + 1)
    assert arena.held == 2 * PAGE
    arena.reserve(0, PAGE)
    assert arena.held == 2 * PAGE
    arena.reserve(PAGE, PAGE)
    assert arena.held == 2 * PAGE
    arena.reserve(FALLOCATE_STEP, 2 * FALLOCATE_STEP + 3 * PAGE)
    assert arena.held == FALLOCATE_STEP + 5 * PAGE
    arena.reserve(0, 100 * FALLOCATE_STEP)
    assert arena.held == arena.size


def test_reserving_keeps_what_was_written(make_arena: Callable[..., Arena]) -> None:
    arena = make_arena(4 * PAGE, sparse=True)
    mapping = arena.handle.map()
    mapping[:4] = mapping[3 * PAGE : 3 * PAGE + 4] = b"kept"
    arena.reserve(0, 4 * PAGE)
    assert mapping[:4] == mapping[3 * PAGE : 3 * PAGE + 4] == b"kept"


@pytest.mark.parametrize(
    ("start", "stop", "gone"),
    [
        (0, 8 * PAGE, range(8)),
        (PAGE, 3 * PAGE, range(1, 3)),
        (PAGE + 1, 4 * PAGE - 1, range(2, 3)),
        (PAGE - 1, 2 * PAGE + 1, range(1, 2)),
        (PAGE + 1, 2 * PAGE - 1, range(0)),
        (PAGE + 1, PAGE + 2, range(0)),
        (2 * PAGE, 2 * PAGE, range(0)),
    ],
)
def test_punching_takes_whole_pages_only(
    make_arena: Callable[..., Arena], start: int, stop: int, gone: range
) -> None:
    arena = make_arena(8 * PAGE)
    mapping = arena.handle.map()
    mapping[:] = b"x" * arena.size
    arena.punch(start, stop)
    assert arena.held == (8 - len(gone)) * PAGE
    assert arena.size == len(mapping) == 8 * PAGE
    for page in range(8):
        expected = b"\0" if page in gone else b"x"
        assert mapping[page * PAGE : (page + 1) * PAGE] == expected * PAGE


def test_punched_page_comes_back_when_it_is_used(make_arena: Callable[..., Arena]) -> None:
    arena = make_arena(4 * PAGE)
    mapping = arena.handle.map()
    arena.punch(0, 4 * PAGE)
    assert arena.held == 0
    assert mapping[PAGE : PAGE + 1] == b"\0"
    assert arena.held == PAGE
    arena.reserve(2 * PAGE, 4 * PAGE)
    mapping[2 * PAGE : 2 * PAGE + 2] = b"ok"
    assert arena.held == 3 * PAGE


def test_refused_punch_is_an_error() -> None:
    arena = Arena("test", 2 * PAGE)
    arena.close()
    with pytest.raises(OSError, match="Bad file descriptor"):
        arena.punch(0, 2 * PAGE)


@pytest.mark.process
def test_punching_takes_pages_that_another_process_has_locked(
    make_arena: Callable[..., Arena], forked: Forked
) -> None:
    """As the environment process locks its memory, with permission."""
    told, arena = make_arena(PAGE), make_arena(BIG)
    note = told.handle.map()

    def hold() -> None:
        mapping = arena.handle.map()
        locked = scheduling._libc().mlockall(
            scheduling._MCL_CURRENT | scheduling._MCL_FUTURE | scheduling._MCL_ONFAULT
        )
        for at in range(0, BIG, PAGE):
            mapping[at] = 1
        note[1] = locked == 0
        note[0] = 1
        assert eventually(lambda: note[2])
        assert mapping[:BIG] == bytes(BIG // 2) + (b"\1" + bytes(PAGE - 1)) * (BIG // 2 // PAGE)

    holder = forked.start(hold)
    assert eventually(lambda: note[0])
    if not note[1]:
        pytest.skip("locking that much memory is not permitted here")
    arena.punch(0, BIG // 2)
    assert arena.held == BIG // 2
    note[2] = 1
    assert forked.wait(holder) == 0


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.ENOMEM])
def test_lack_of_memory_is_one_line(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    descriptors = open_descriptors()

    def refuse(descriptor: int, offset: int, length: int) -> None:
        if offset:
            raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "posix_fallocate", refuse)
    told = f"at {FALLOCATE_STEP >> 20} of {4 * FALLOCATE_STEP >> 20} MiB"
    wanted = ("no memory for the frames", told, os.strerror(number), "replay.capacity")
    with one_line(*wanted) as caught:
        Arena("the frames", 4 * FALLOCATE_STEP)
    assert caught.value.__cause__ is None
    assert open_descriptors().items() <= descriptors.items()


@pytest.mark.parametrize(
    ("name", "most", "told"),
    [("NOFILE", 0, "Too many open files"), ("FSIZE", PAGE, "File too large")],
)
def test_a_limit_of_the_shell_is_one_line(name: str, most: int, told: str) -> None:
    descriptors = open_descriptors()
    refused = one_line(f"^no memory for frames: {told}", "ulimit -n", "ulimit -f")
    with limited(name, most), refused:
        Arena("frames", 2 * PAGE)
    assert open_descriptors().items() <= descriptors.items()


def test_check_memory_names_the_largest_purpose(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arena_module, "available_memory", lambda: 100 << 20)
    check_memory({"ledger": 40 << 20, "frames": 60 << 20})
    words = r"101 MiB are needed \(60 MiB of it for frames\) and 100 MiB are available.*\Z"
    with pytest.raises(UserError, match=words):
        check_memory({"ledger": 40 << 20, "frames": (60 << 20) + 1, "weights": 1 << 20})


@pytest.mark.parametrize(("largest", "told"), [
    ("frames", "lower replay.capacity"), ("learner", "take a smaller network"),
])
def test_check_memory_says_what_saves_the_most(
    monkeypatch: pytest.MonkeyPatch, largest: str, told: str
) -> None:
    """It told to lower replay.capacity where the state of the learners alone was too large."""
    monkeypatch.setattr(arena_module, "available_memory", lambda: 50 << 20)
    with pytest.raises(UserError, match=f"{told}$"):
        check_memory({"ledger": 1 << 20, largest: 60 << 20})


def test_available_memory_is_that_of_the_fullest_container(monkeypatch: pytest.MonkeyPatch) -> None:
    levels = [Level("machine", 1000, 700), Level("group", 500, 300)]
    monkeypatch.setattr(arena_module, "memory_levels", lambda: levels)
    assert available_memory() == 300
    # A group may be above its limit for a moment.
    levels.append(Level("inner", 100, -5))
    assert available_memory() == 0


@pytest.mark.process
def test_no_arena_shrinks_or_grows(make_arena: Callable[..., Arena], forked: Forked) -> None:
    arena = make_arena(4 * PAGE, sparse=True)

    def resize() -> None:
        for size in (PAGE, 8 * PAGE):
            with pytest.raises(PermissionError):
                os.truncate(f"/proc/{arena.handle.owner_pid}/fd/{arena.descriptor}", size)

    assert forked.run(resize) == 0
    arena.reserve(0, 4 * PAGE)
    assert arena.held == 4 * PAGE
    arena.punch(0, 2 * PAGE)
    assert arena.held == 2 * PAGE
    arena.reserve(0, 4 * PAGE)
    assert arena.held == 4 * PAGE


@pytest.mark.process
def test_a_process_that_is_not_dumpable_shares_with_its_children(forked: Forked) -> None:
    def own() -> None:
        if os.geteuid() == 0:
            # Root may look everywhere; to change the user makes a process undumpable, too.
            os.setresuid(65534, 65534, 65534)
        ctypes.CDLL(None).prctl(PR_SET_DUMPABLE, 0, 0, 0, 0)
        arena = Arena("own", PAGE)
        with forked_children() as children:
            assert children.run(lambda: arena.handle.map()) == 0

    assert forked.run(own) == 0
