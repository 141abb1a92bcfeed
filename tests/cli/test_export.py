"""`rtagent export`: the file answers what the policy answers."""

from __future__ import annotations

from pathlib import Path

import onnx
import onnxruntime
import pytest
import torch

from rtagent.config_sources import load_config
from rtagent.evaluation.trained_policy import TrainedPolicy
from rtagent.storage import checkpoint as checkpoints
from tests.cli.conftest import Refused, Run
from tests.trained import leave_checkpoint

WORLDS = {
    "values of a vector": ("env.id=CartPole-v1", "policy.width=1"),
    "distributions": ("env.id=CartPole-v1", "learning.algorithm=c51", "learning.dueling=true"),
    "an action": ("env.id=Pendulum-v1",),
    "attention": ("env.id=CartPole-v1", "policy.network=transformer", "env.frame_stack=3"),
}


@pytest.mark.parametrize("settings", list(WORLDS.values()), ids=list(WORLDS))
def test_torch_and_onnx_answer_alike(run: Run, tmp_path: Path, settings: tuple[str, ...]) -> None:
    path = leave_checkpoint(tmp_path, *settings)
    config = load_config(None, settings, {})
    policy = TrainedPolicy(config, checkpoints.load(path), path)
    shape = policy.blueprint.observation_space.shape
    observations = torch.randn(7, *shape)
    with torch.inference_mode():
        wanted = policy.answering()(observations)
    for name in ("policy.pt2", "policy.onnx"):
        done = run("export", str(path), "--out", str(tmp_path / name), "--json")
        assert done.document()["largest_difference"] < 1e-4
    program = torch.export.load(tmp_path / "policy.pt2").module()
    torch.testing.assert_close(program(observations), wanted, rtol=1e-4, atol=1e-4)
    session = onnxruntime.InferenceSession(tmp_path / "policy.onnx")
    (answer,) = session.run(["values"], {"observation": observations.numpy()})
    torch.testing.assert_close(torch.from_numpy(answer), wanted, rtol=1e-4, atol=1e-4)


def test_the_file_of_the_built_in_game_says_what_it_is(run: Run, tmp_path: Path) -> None:
    leave_checkpoint(tmp_path, "env.kwargs={starts=2}")
    out = tmp_path / "policy.onnx"
    code, said, err = run("export", str(tmp_path), "--out", str(out))
    assert code == 0, err
    assert "4x84x84 uint8" in said
    (wanted,) = onnxruntime.InferenceSession(out).get_inputs()
    assert wanted.type == "tensor(uint8)"
    assert wanted.shape[1:] == [4, 84, 84]
    props = {each.key: each.value for each in onnx.load(out).metadata_props}
    assert props["environment"] == "rtagent/Starfall-v0"
    assert props["updates"] == "7"


def test_an_unknown_ending_or_another_answer_is_refused(
    refused: Refused, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    leave_checkpoint(tmp_path, *WORLDS["values of a vector"])
    export = ("export", str(tmp_path), "--out")
    assert "must end in .pt2 or .onnx or .mcap" in refused(*export, str(tmp_path / "policy.h5"))
    monkeypatch.setattr("rtagent.evaluation.export._ask_torch", lambda path, asked: asked.sum() * 0)
    (tmp_path / "policy.pt2").write_bytes(b"of before")
    assert "answers something else" in refused(*export, str(tmp_path / "policy.pt2"))
    assert (tmp_path / "policy.pt2").read_bytes() == b"of before"
    assert not list(tmp_path.glob(".export-*")), "no draft is left"
