"""What goes when a folder has become too large, and what never does."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from rtagent.files.pruning import RUN_RECORD, bytes_in, next_number, prune, run_folders


def make_runs(folder: Path, count: int, size: int = 1000) -> list[Path]:
    """Folders of runs of `size` bytes in two files, newest first."""
    paths = []
    for number in range(count):
        path = folder / f"{number:08x}"
        (path / "tensorboard").mkdir(parents=True)
        (path / "events.jsonl").write_bytes(b"x" * (size // 2))
        (path / "tensorboard" / "events").write_bytes(b"x" * (size - size // 2))
        os.utime(path, (number, number))
        paths.insert(0, path)
    return paths


@pytest.mark.parametrize(
    ("number", "most_bytes", "left"),
    [(10, 10_000, 5), (5, 5000, 5), (2, 10_000, 2), (10, 3999, 3), (1, 1, 1), (0, 0, 1)],
)
def test_the_oldest_go_by_number_and_by_size_but_never_the_newest(
    tmp_path: Path, number: int, most_bytes: int, left: int
) -> None:
    paths = make_runs(tmp_path, 5)
    assert run_folders(tmp_path) == paths
    assert prune(paths, number, most_bytes) == paths[left:]
    assert run_folders(tmp_path) == paths[:left]


def test_the_order_of_runs_is_that_of_their_numbers_whatever_the_clock_says(tmp_path: Path) -> None:
    """The clock of a small board without a battery begins with the same time at each start."""
    assert next_number(tmp_path) == 1
    older, numbered = make_runs(tmp_path, 2), []
    (older[0] / RUN_RECORD).write_text('{"number": "many"}')
    os.utime(older[0], (100, 100))
    os.utime(older[1], (200, 200))
    for number, time in ((8, 50), (9, 20), (10, 30)):
        path = tmp_path / f"{0xf0 - number:08x}"
        path.mkdir()
        (path / RUN_RECORD).write_text(f'{{"number": {number}}}')
        os.utime(path, (time, time))
        numbered.insert(0, path)
    assert run_folders(tmp_path) == [*numbered, *reversed(older)]
    assert next_number(tmp_path) == 11


def test_what_is_not_a_runs_folder_stays(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    make_runs(outside, 1)
    runs = tmp_path / "runs"
    runs.mkdir()
    (runs / "0000000a").write_text("a file")
    (runs / "0000000b").symlink_to(outside)
    (runs / "the best one").mkdir()
    assert run_folders(runs) == []
    assert run_folders(tmp_path / "absent") == []


def test_links_are_neither_counted_nor_followed(tmp_path: Path) -> None:
    outside, = make_runs(tmp_path / "outside", 1, 10_000)
    runs = make_runs(tmp_path / "runs", 2)
    (runs[1] / "link").symlink_to(outside)
    assert bytes_in(runs[1]) < 2000
    prune(runs, 1, 10_000)
    assert not runs[1].exists()
    assert bytes_in(outside) == 10_000


def test_what_vanishes_or_cannot_be_removed_is_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = [tmp_path / name for name in ("c", "b", "a")]
    for path in files:
        path.write_bytes(b"1234")
    unlink = Path.unlink

    def refuse(path: Path, missing_ok: bool = False) -> None:
        if path == files[1]:
            raise PermissionError
        unlink(path, missing_ok)

    monkeypatch.setattr(Path, "unlink", refuse)
    assert prune([*files, tmp_path / "gone"], 1, 100) == [files[2], tmp_path / "gone"]
    assert set(tmp_path.iterdir()) == set(files[:2])
    assert bytes_in(tmp_path / "gone") == 0
