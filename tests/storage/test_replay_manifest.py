"""The manifest of a saved replay: whole, of this run, or refused in one line."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rtagent.storage import replay_snapshot
from rtagent.storage.replay_snapshot import MANIFEST, Manifest, ReplayError, find
from tests.forked import Forked
from tests.refused import one_line
from tests.storage.damaged import each_byte_damaged
from tests.stored_replay import SHOWN, SIGNATURE, Rings, priorities
from tests.stored_replay import small_chunks as small_chunks

pytestmark = pytest.mark.usefixtures("small_chunks")


def test_every_flipped_byte_of_the_manifest_is_found(tmp_path: Path) -> None:
    Rings().write(20).save(tmp_path)
    found = find(tmp_path, SIGNATURE)
    for at in each_byte_damaged(tmp_path / MANIFEST, 0x04):
        refused, seen = "", None
        try:
            seen = find(tmp_path, SIGNATURE)
        except ReplayError as error:
            refused = str(error)
        # White space may have become other white space.
        assert seen == found or "run.checkpoint_replay=false" in refused, at
        assert "\n" not in refused


def rewritten(folder: Path, change: Callable[[Any], object]) -> None:
    """Change the manifest, and its checksum with it."""
    content = json.loads((folder / MANIFEST).read_text())["replay"]
    change(content)
    text = json.dumps({"crc32": f"{replay_snapshot._crc(content):08x}", "replay": content})
    (folder / MANIFEST).write_text(text)


@pytest.mark.parametrize(
    "file", ["/dev/zero", "../x.chunk", "a/b.chunk", ".hidden.chunk", "x", "x.chunk\0", "", 5, None]
)
def test_only_plain_names_in_the_folder_are_files_of_a_replay(tmp_path: Path, file: object) -> None:
    Rings().write(20).save(tmp_path, priorities=priorities)
    whole = (tmp_path / MANIFEST).read_text()
    for place in (lambda of: of["chunks"][0], lambda of: of["priorities"]):
        (tmp_path / MANIFEST).write_text(whole)
        rewritten(tmp_path, lambda content, place=place: place(content).update(file=file))
        with pytest.raises(ReplayError, match="is no file of a replay"):
            find(tmp_path, SIGNATURE)


@pytest.mark.parametrize("change", [
    lambda of: of.update(oldest=-1), lambda of: of.update(newest=10**15),
    lambda of: of.update(newest="19"), lambda of: of.update(chunks=[]),
    lambda of: of.update(chunks=5), lambda of: of.update(signature=[]),
    lambda of: of["chunks"][0].update(first=-(10**30)),
    lambda of: of["chunks"][0].update(stop=10**9),
    lambda of: of["chunks"][0].update(bytes=1.5),
    lambda of: of["chunks"].append(of["chunks"][-1] | {"first": 20}),
    lambda of: of["chunks"].reverse(), lambda of: of["chunks"].append(of["chunks"][0]),
    lambda of: of["chunks"][0].pop("bytes"), lambda of: of.pop("priorities"),
    lambda of: of.update(priorities=[]), lambda of: of.update(format=[]),
])
def test_a_manifest_that_nobody_wrote_is_one_line(
    tmp_path: Path, change: Callable[[Any], object]
) -> None:
    Rings().write(20).save(tmp_path)
    rewritten(tmp_path, change)
    with one_line(error=ReplayError):
        find(tmp_path, SIGNATURE)


@pytest.mark.parametrize("text", ["[" * 100_000, "5", "null", '{"replay": {}}', " " * (5 << 20)])
def test_a_manifest_of_something_else_is_one_line(tmp_path: Path, text: str) -> None:
    (tmp_path / MANIFEST).write_text(text)
    with pytest.raises(ReplayError, match="is corrupt"):
        find(tmp_path, SIGNATURE)


def test_a_pipe_is_no_manifest(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / MANIFEST)
    with pytest.raises(ReplayError, match="not a regular file"):
        find(tmp_path, SIGNATURE)


@pytest.mark.process
def test_a_save_does_not_wait_for_a_pipe_in_the_manifests_place(
    tmp_path: Path, forked: Forked
) -> None:
    os.mkfifo(tmp_path / MANIFEST)

    def save() -> None:
        with pytest.raises(ReplayError, match="not a regular file"):
            Rings().write(60).save(tmp_path)

    assert forked.run(save) == 0


def test_a_later_format_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replay_snapshot, "FORMAT", 3)
    Rings().write(20).save(tmp_path)
    monkeypatch.undo()
    with pytest.raises(ReplayError, match="has format 3"):
        find(tmp_path, SIGNATURE)


@pytest.mark.parametrize(
    ("field", "other"),
    [("environment", "Other-v0"), ("observation", "4x84x84 uint8"), ("action", "Box(2)")],
)
def test_a_replay_of_something_else_is_refused(tmp_path: Path, field: str, other: str) -> None:
    Rings().write(20).save(tmp_path)
    assert find(tmp_path, replace(SIGNATURE, network="mlp")) is not None
    with pytest.raises(ReplayError, match=r"belongs to the .*--state-dir") as caught:
        find(tmp_path, replace(SIGNATURE, **{field: other}))
    assert other in str(caught.value)
    assert getattr(SIGNATURE, field) in str(caught.value)


def test_the_manifest_says_what_is_there(tmp_path: Path) -> None:
    Rings().write(250).save(tmp_path, priorities=priorities)
    manifest = find(tmp_path, SIGNATURE)
    assert isinstance(manifest, Manifest)
    assert (manifest.oldest, manifest.newest) == (250 - SHOWN, 249)
    edges = [(chunk.first, chunk.stop) for chunk in manifest.chunks]
    assert edges == [
        (158, 160), (160, 176), (176, 192), (192, 208), (208, 224), (224, 240), (240, 250)
    ]
    for chunk in [*manifest.chunks, manifest.priorities]:
        assert (tmp_path / chunk.file).stat().st_size == chunk.bytes
