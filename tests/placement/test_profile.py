"""Profiles, and the files that keep them."""

from __future__ import annotations

import json
import math
import stat
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

import pytest

from rtagent.cli import profile as cli_profile
from rtagent.config_sources import load_config
from rtagent.errors import UserError
from rtagent.placement.profile import (
    FOLDER,
    ProfileCache,
    cache_key,
    from_json,
    processor_name,
    to_json,
)
from tests.placement.steps import made_actor_critic, made_profile


def test_a_profile_is_read_as_it_was_written(tmp_path: Path) -> None:
    cache, profile = ProfileCache(tmp_path), made_profile()
    assert cache.read("k") is None
    cache.write("k", profile)
    assert cache.read("k") == profile
    assert from_json(json.loads(json.dumps(to_json(profile)))) == profile


def test_a_state_directory_is_made_for_its_owner_alone(tmp_path: Path) -> None:
    """A daemon refuses one in which a group can write, and the umask may give it the right."""
    ProfileCache(tmp_path / "state").write("k", made_profile())
    assert stat.S_IMODE((tmp_path / "state").stat().st_mode) == 0o700


@pytest.mark.parametrize("wrong", [
    b"", b"[]", b"{}", b'{"parts": [], "step_us": {}}', b'{"parts": [1], "step_us": {}}', b"\0\xff",
    {"cores": "two"}, {"step_us": ["float32", "bfloat16"]}, {"handover_us": None},
    {"step_us": {"float32": 0.0, "bfloat16": 1.0}}, {"cast_us_per_mb": math.inf},
    {"parts": [to_json(made_profile())["parts"][0] | {"alone_us": [1.0]}]},
    {"noise": "little"}, {"steps": None}, {"batch_size": "32"},
])
def test_a_file_with_anything_but_times_is_as_good_as_none(
    tmp_path: Path, wrong: bytes | dict[str, Any]
) -> None:
    """A plan was made of it that predicted nothing, or the learner went on without any."""
    if isinstance(wrong, dict):
        wrong = json.dumps(to_json(made_profile()) | wrong).encode()
    (tmp_path / FOLDER).mkdir()
    (tmp_path / FOLDER / "k.json").write_bytes(wrong)
    assert ProfileCache(tmp_path).read("k") is None


def test_a_whole_step_takes_more_than_the_medians_of_its_parts() -> None:
    profile = made_profile(layers=("values",))
    # Seven parts of 100 us.
    assert profile.precisions == ("float32", "bfloat16")
    assert replace(profile, step_us={"float32": 770.0}).whole(split=False) == pytest.approx(1.1)
    both = replace(profile, split_us={"float32": 770.0, "bfloat16": 910.0})
    assert both.whole(split=True) == pytest.approx(1.2)
    assert both.whole(split=False) == 1.0


@pytest.mark.parametrize("wrong", [
    {"kind": "lunch"}, {"after": [2]}, {"after": [1, 9]}, {"after": [-1]}, {"layer": ["values"]},
    {"alone_us": {"float32": "5"}}, {"alone_us": {"float32": math.nan}}, {"beside_us": {}},
    {"beside_us": {"float32": -1.0, "bfloat16": 1.0}}, {"output_mb": None},
])
def test_parts_that_no_step_has_are_refused(wrong: dict[str, Any]) -> None:
    document = json.loads(json.dumps(to_json(made_profile())))
    document["parts"][2] |= wrong
    with pytest.raises(ValueError, match="no part of a step"):
        from_json(document)


def test_a_part_of_a_backward_pass_knows_its_forward_part() -> None:
    parts = {part.name: part for part in made_actor_critic().parts}
    assert parts["actor policy weights"].forward == ("actor", "policy")
    assert parts["critic weights"].forward == ("critic", "forward")
    assert parts["policy loss"].forward is parts["actor target"].forward is None
    assert parts["policy loss"].own_pass == parts["critic policy inputs"].own_pass == "policy"
    assert parts["critic weights"].own_pass is None


def test_a_profile_that_cannot_be_kept_is_told_in_one_line(tmp_path: Path) -> None:
    (tmp_path / FOLDER).write_text("a file")
    with pytest.raises(UserError, match=r"profiles: File exists; .* --set run.state_dir="):
        ProfileCache(tmp_path).write("k", made_profile())


def test_it_is_told_before_anything_is_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def measured(*_: object) -> NoReturn:
        raise AssertionError("measured")

    (tmp_path / FOLDER).write_text("a file")
    monkeypatch.setattr(cli_profile, "in_measured_process", measured)
    config = load_config({"run": {"state_dir": str(tmp_path)}}, environ={})
    with pytest.raises(UserError, match=r"cannot keep the profile in .*: File exists; "):
        cli_profile.profile_of(config, 4, 1.0)


def test_another_machine_or_network_has_another_key(tmp_path: Path) -> None:
    info = tmp_path / "cpuinfo"
    info.write_text("processor : 0\nmodel name : Quick\nflags : avx2\ncpu MHz : 1\n")
    assert processor_name(info) == "flags : avx2; model name : Quick"
    assert processor_name(tmp_path / "none") == "unknown"
    assert cache_key("a", 1) == cache_key("a", 1) != cache_key("a", 2)
