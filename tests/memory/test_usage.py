"""Memory measured from the outside, on files made by hand and on real processes."""

from __future__ import annotations

import errno
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rtagent.memory.arena import Arena
from rtagent.memory.usage import Level, memory_levels, private_bytes
from tests.forked import Forked, eventually
from tests.refused import one_line

MIB = 1 << 20
GIB = 1 << 30


def put(root: Path, files: dict[str, Any]) -> Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(str(text))
    return root


def machine(root: Path, cgroup: str = "", available: int = 4 * GIB) -> Path:
    meminfo = f"MemTotal: {8 * GIB // 1024} kB\nMemAvailable: {available // 1024} kB\n"
    return put(root, {"meminfo": meminfo, "self/cgroup": cgroup})


# ---- what is left


def test_the_machine_alone(tmp_path: Path) -> None:
    assert memory_levels(machine(tmp_path), tmp_path / "none") == [
        Level("machine", 8 * GIB, 4 * GIB)
    ]


def test_version_2_groups_and_those_around_them(tmp_path: Path) -> None:
    proc = machine(tmp_path / "proc", "0::/outer/inner\n")
    groups = put(
        tmp_path / "cgroup",
        {
            "outer/memory.max": GIB,
            "outer/memory.high": "max",
            "outer/memory.current": 900 * MIB,
            "outer/memory.stat": f"anon 5\ninactive_file {200 * MIB}\n",
            "outer/inner/memory.max": "max",
            "outer/inner/memory.high": 512 * MIB,
            "outer/inner/memory.current": 100 * MIB,
            "outer/inner/memory.pressure":
                "some avg10=90.00 avg60=1.00 avg300=0.00 total=7\n"
                "full avg10=12.50 avg60=1.00 avg300=0.00 total=7\n",
        },
    )
    _, inner, outer = memory_levels(proc, groups)
    assert (inner.limit, inner.available) == (512 * MIB, 412 * MIB)
    assert inner.stalled_percent == 12.5
    assert inner.short
    # File cache that is out of use can be had.
    assert (outer.limit, outer.available) == (GIB, (1024 - 900 + 200) * MIB)
    assert not outer.short


def test_version_1_groups_but_not_an_unlimited_one(tmp_path: Path) -> None:
    proc = machine(tmp_path / "proc", "5:cpu:/x\n4:memory:/job\n0::/\n")
    groups = put(
        tmp_path / "cgroup",
        {
            "memory/job/memory.limit_in_bytes": GIB,
            "memory/job/memory.usage_in_bytes": 1000 * MIB,
            "memory/job/memory.stat": f"inactive_file 1\ntotal_inactive_file {4 * MIB}\n",
            "memory/memory.limit_in_bytes": 9223372036854771712,
            "memory/memory.usage_in_bytes": 5 * MIB,
        },
    )
    _, job = memory_levels(proc, groups)
    assert (job.limit, job.available) == (GIB, 28 * MIB)
    assert job.short


def test_a_group_seen_from_inside_a_container(tmp_path: Path) -> None:
    """Its path leads nowhere there; its own files are at the root."""
    proc = machine(tmp_path / "proc", "0::/somewhere/else\n")
    groups = put(tmp_path / "cgroup", {"memory.max": GIB, "memory.current": 0})
    assert [level.limit for level in memory_levels(proc, groups)] == [8 * GIB, GIB]


@pytest.mark.parametrize("meminfo", [None, "", "MemTotal: 8 kB\n"])
def test_a_hidden_machine_is_one_line(tmp_path: Path, meminfo: str | None) -> None:
    """As with `/proc` mounted with `subset=pid`, or none at all."""
    put(tmp_path, {"self/cgroup": ""} | ({} if meminfo is None else {"meminfo": meminfo}))
    with one_line(rf"{tmp_path}/meminfo does not say .*subset=pid"):
        memory_levels(tmp_path, tmp_path / "none")


def test_a_lack_of_descriptors_is_no_fault_of_the_user(monkeypatch: pytest.MonkeyPatch) -> None:
    """It passes; a `UserError` would end a run for it."""

    def refuse(path: Path) -> str:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    monkeypatch.setattr(Path, "read_text", refuse)
    with pytest.raises(OSError, match="Too many open files"):
        memory_levels()


def test_short_and_calm_leave_a_gap_between_them() -> None:
    big = Level("machine", 100 * GIB, 0)
    assert big.floor == 3 * GIB
    assert Level("small", GIB, 0).floor == 64 * MIB
    for size, short, calm in ((2, True, False), (4, False, False), (7, False, True)):
        level = Level("machine", 100 * GIB, size * GIB)
        assert (level.short, level.calm) == (short, calm)


def test_this_machine_has_a_plausible_level() -> None:
    level = memory_levels()[0]
    assert 0 < level.available <= level.limit


# ---- what is used


def test_a_process_without_a_readable_set_counts_its_anonymous_memory(tmp_path: Path) -> None:
    put(
        tmp_path,
        {
            "1/smaps_rollup": "00-ff ---p 0 00:00 0 [rollup]\nRss: 9 kB\nPss: 7 kB\n"
            "Pss_Anon: 2 kB\nPss_File: 1 kB\nPss_Shmem: 4 kB\n",
            "2/status": "Name: x\nRssAnon:\t 50 kB\nRssShmem:\t 99 kB\n",
        },
    )
    assert private_bytes([1], tmp_path) == 3 * 1024
    assert private_bytes([2], tmp_path) == 50 * 1024
    assert private_bytes([1, 2, 3], tmp_path) == 53 * 1024


@pytest.mark.process
def test_own_memory_counts_once_and_shared_memory_not_at_all(
    forked: Forked, make_arena: Callable[..., Arena]
) -> None:
    arena = make_arena(40 * MIB)
    inherited = np.ones(30 * MIB, np.uint8)
    pids = [os.getpid()]
    before = private_bytes(pids)

    def body() -> None:
        seen = np.frombuffer(arena.handle.map(), np.uint8)
        own = np.ones(20 * MIB, np.uint8)
        assert int(seen[::4096].sum()) + int(inherited[::4096].sum()) + len(own)
        signal.pause()

    def grown() -> int:
        return private_bytes(pids) - before

    pids += [forked.start(body) for _ in range(2)]
    assert eventually(lambda: grown() > 30 * MIB)
    # Two times 20 MiB of their own; twice 30 inherited or 40 shared would make it 80 and more. This
    # process, which other tests have grown, moves by some MiB meanwhile.
    assert grown() < 65 * MIB
    for pid in pids[1:]:
        forked.kill(pid)
    assert eventually(lambda: grown() < 20 * MIB)
