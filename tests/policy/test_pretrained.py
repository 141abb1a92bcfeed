"""Finished policies: files, and policies of a stand-in for LeRobot."""

from __future__ import annotations

import logging
import os
import socket
import sys
from collections import deque
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from gymnasium import spaces
from torch import nn

from rtagent.config import PolicyConfig
from rtagent.config_sources import parse_config
from rtagent.errors import UserError
from rtagent.policy.lerobot import Reading
from rtagent.policy.pretrained import PretrainedPolicy
from tests.ports import free_port
from tests.refused import one_line

VECTORS = spaces.Box(-np.inf, np.inf, (2, 5), np.float32)
PICTURES = spaces.Box(0, 255, (2, 8, 6), np.uint8)
TURNS = spaces.Discrete(3)
ARM = spaces.Box(-1.0, 1.0, (2,), np.float32)
LEROBOT = "rtagent.policy.lerobot:load"


def opened(pretrained: object, actions: Any = ARM, seen: Any = VECTORS, **more: Any) -> Any:
    return PretrainedPolicy(PolicyConfig(pretrained=str(pretrained), **more), seen, actions)


class Chunks(nn.Module):
    """(B, 2, 5) to (B, 4, 2)."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(10, 8)

    def forward(self, observation: torch.Tensor) -> torch.Tensor:
        return self.layer(observation.flatten(1)).unflatten(1, (4, 2))


def write(module: nn.Module, seen: spaces.Box, path: Path) -> None:
    example = torch.from_numpy(np.zeros((1, *seen.shape), seen.dtype))
    program = torch.export.export(module.eval(), (example,))
    if path.suffix == ".pt2":
        torch.export.save(program, path)
    else:
        onnx.save(torch.onnx.export(program, (example,), dynamo=True, verbose=False).model_proto,
                  path)


def test_a_program_and_an_onnx_file_answer_as_the_module(tmp_path: Path) -> None:
    torch.manual_seed(0)
    module = Chunks().eval()
    observation = np.random.default_rng(0).normal(size=(2, 5)).astype(np.float32)
    with torch.no_grad():
        wanted = module(torch.from_numpy(observation)[None])[0].numpy()
    for name in ("policy.pt2", "policy.onnx"):
        write(module, VECTORS, tmp_path / name)
        found = opened(tmp_path / name).values(observation)
        assert found.shape == (4, 2)
        np.testing.assert_allclose(found, wanted, rtol=1e-5)


class Sums(nn.Module):
    """Values of three actions, of pictures."""

    def forward(self, pixels: torch.Tensor) -> torch.Tensor:
        total = pixels.float().flatten(1).sum(1, keepdim=True)
        return torch.cat([total, -total, 0 * total], 1)


def test_values_of_discrete_actions(tmp_path: Path) -> None:
    write(Sums(), PICTURES, tmp_path / "sums.pt2")
    policy = opened(tmp_path / "sums.pt2", TURNS, PICTURES)
    assert policy.values(np.full((2, 8, 6), 2, np.uint8)).tolist() == [[192.0, -192.0, 0.0]]


def test_what_does_not_fit_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(Sums(), PICTURES, tmp_path / "sums.pt2")
    (tmp_path / "broken.onnx").write_bytes(b"no model")
    (tmp_path / "broken.pt2").write_bytes(b"no program")
    torch.save({}, tmp_path / "weights.pt2")
    cases: list[tuple[str, Any, Any, dict[str, Any], str]] = [
        ("nothing.pt2", ARM, VECTORS, {}, "no such file"),
        ("policy.h5", ARM, VECTORS, {}, r"must end in \.pt2 .* or \.onnx"),
        ("broken.pt2", ARM, VECTORS, {}, "cannot be loaded"),
        ("broken.onnx", ARM, VECTORS, {}, "cannot be loaded"),
        ("weights.pt2", ARM, VECTORS, {}, "cannot be loaded: .*archive_format: file not found"),
        ("sums.pt2", TURNS, VECTORS, {}, "fails on float32 observations of the shape"),
        ("sums.pt2", ARM, PICTURES, {}, r"answers .* \(1, 3\), not with \(2,\)"),
        ("sums.pt2", TURNS, PICTURES, {"device": "cuda"}, "runs on the CPU"),
        ("x/y", ARM, VECTORS, {"factory": "rtagent.nothing:load"}, "cannot be imported"),
    ]
    logged: list[logging.LogRecord] = []
    handler = logging.Handler()
    monkeypatch.setattr(handler, "emit", logged.append)
    monkeypatch.setattr(logging.getLogger("torch.export"), "handlers", [handler])
    for name, actions, seen, more, message in cases:
        with one_line(message):
            opened(tmp_path / name, actions, seen, **more)
    assert not logged, "torch says the same with a traceback"


@pytest.mark.parametrize(("change", "name"), [
    ({"learning": {"processes": 1}}, "learning.processes"),
    ({"policy": {"remote": "ws://there:1"}}, "policy.remote"),
    ({"policy": {"engine": "openvino"}}, "policy.engine"),
    ({"env": {"pending_actions": 2}}, "env.pending_actions"),
])
def test_it_only_acts(change: dict[str, Any], name: str) -> None:
    values: dict[str, Any] = {"policy": {"pretrained": "x.pt2"}, "learning": {"processes": 0}}
    assert not parse_config(values).policy.learns
    for section, settings in change.items():
        values[section] = values.get(section, {}) | settings
    with pytest.raises(UserError, match=rf"{name} = .* does not fit policy\.pretrained"):
        parse_config(values)


class Library:
    """Stands in for LeRobot: a policy that answers with what it sees, twice as large."""

    def __init__(self, inputs: dict[str, tuple[int, ...]], steps: int = 1) -> None:
        self.config = SimpleNamespace(
            type="tiny", device="cuda", n_obs_steps=steps,
            input_features={name: SimpleNamespace(shape=each) for name, each in inputs.items()},
            output_features={"action": SimpleNamespace(shape=(2,))},
        )
        self.seen: list[dict[str, torch.Tensor]] = []
        self._queues: dict[str, deque[Any]] = {
            name: deque(maxlen=steps) for name in [*inputs, "action"]
        }

    def modules(self) -> dict[str, Any]:
        def config_of(source: str) -> Any:
            if source == "some/where":
                raise OSError("We couldn't connect to the hub\nto load this file")
            return self.config

        made = SimpleNamespace(from_pretrained=lambda source, config: self)
        return {
            "lerobot.configs.policies": SimpleNamespace(
                PreTrainedConfig=SimpleNamespace(from_pretrained=config_of)
            ),
            "lerobot.policies.factory": SimpleNamespace(
                get_policy_class=lambda kind: made,
                make_pre_post_processors=lambda *_, **__: (dict, lambda actions: actions * 2.0),
            ),
        }

    def eval(self) -> Library:
        return self

    def predict_action_chunk(self, batch: dict[str, torch.Tensor]) -> torch.Tensor:
        self.seen.append(batch)
        return torch.arange(6.0).reshape(1, 3, 2)


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> Any:
    # The hub is not asked, and the variable is restored after the test.
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")

    def install(inputs: dict[str, tuple[int, ...]], steps: int = 1) -> Library:
        made = Library(inputs, steps)
        for name, module in made.modules().items():
            monkeypatch.setitem(sys.modules, name, module)
        return made

    return install


def test_a_chunk_of_a_lerobot_policy_goes_through_its_processors(library: Any) -> None:
    made = library({"observation.state": (3,), "observation.environment_state": (2,)})
    policy = opened("a/folder", factory=LEROBOT)
    assert policy.values(np.arange(10, dtype=np.float32).reshape(2, 5)).tolist() == [
        [0.0, 2.0], [4.0, 6.0], [8.0, 10.0]
    ]
    assert made.config.device == "cpu"
    newest = made.seen[-1]
    assert newest["observation.state"].tolist() == [[5.0, 6.0, 7.0]]
    assert newest["observation.environment_state"].tolist() == [[8.0, 9.0]]


def test_a_policy_is_told_what_to_do(library: Any, tmp_path: Path) -> None:
    made = library({"observation.state": (5,)})
    policy = opened("a/folder", factory=LEROBOT, task="fold the towel")
    policy.values(np.zeros((2, 5), np.float32))
    assert made.seen[-1]["task"] == "fold the towel"
    write(Chunks(), VECTORS, tmp_path / "policy.pt2")
    with pytest.raises(UserError, match=r"unexpected keyword argument 'task'"):
        opened(tmp_path / "policy.pt2", task="fold the towel")
    with pytest.raises(UserError, match=r"policy\.task .* is for policy\.pretrained"):
        parse_config({"policy": {"task": "fold the towel"}})


def test_a_policy_that_looks_back_gets_the_stack(library: Any) -> None:
    made = library({"observation.state": (5,)}, steps=2)
    opened("a/folder", factory=LEROBOT).values(np.arange(10, dtype=np.float32).reshape(2, 5))
    queue = made._queues["observation.state"]
    assert [each.tolist() for each in queue] == [[[0, 1, 2, 3, 4]], [[5, 6, 7, 8, 9]]]
    assert not made._queues["action"]


def test_pictures_become_channels_first_and_up_to_one() -> None:
    reading = Reading({"observation.image": (3, 8, 6)}, PICTURES, 1)
    observation = np.zeros((2, 8, 6), np.uint8)
    observation[1, 2, 3] = 255
    (batch,) = reading.batches(observation)
    image = batch["observation.image"]
    assert image.shape == (1, 3, 8, 6)
    assert image[0, :, 2, 3].tolist() == [1.0, 1.0, 1.0]
    assert float(image.sum()) == 3.0


@pytest.mark.parametrize(("inputs", "steps", "actions", "message"), [
    ({"observation.images.wrist": (3, 480, 640), "observation.state": (6,)}, 1, ARM,
     r"needs observation\.images\.wrist \(3, 480, 640\), .* gives float32 frames of \(5,\)"),
    ({"observation.state": (5,)}, 3, ARM, r"set env\.frame_stack = 3"),
    ({"observation.state": (5,)}, 1, TURNS, r"gives actions of \(2,\), .* takes Discrete\(3\)"),
])
def test_a_policy_that_needs_what_the_environment_lacks(
    library: Any, inputs: Any, steps: int, actions: Any, message: str
) -> None:
    library(inputs, steps)
    with pytest.raises(UserError, match=message):
        opened("a/folder", actions, factory=LEROBOT)


def test_a_hub_without_a_network_and_a_missing_package(
    library: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    library({"observation.state": (5,)})
    monkeypatch.setenv("HF_HUB_OFFLINE", "")
    for each in ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY", "all_proxy"):
        monkeypatch.delenv(each, raising=False)
    # Nobody else listens there afterwards.
    with socket.create_server(("127.0.0.1", free_port())) as hub:
        monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{hub.getsockname()[1]}")
        with pytest.raises(UserError, match=r"'some/where' cannot be loaded: OSError: "):
            opened("some/where", factory=LEROBOT)
        assert os.environ["HF_HUB_OFFLINE"] == "", "a hub that answers is asked"
    with pytest.raises(UserError, match=r"'some/where': is no folder, .* cannot be reached, and"):
        opened("some/where", factory=LEROBOT)
    assert os.environ["HF_HUB_OFFLINE"] == "1", "the library tries nothing then"
    for name in list(sys.modules):
        if name.split(".")[0] == "lerobot":
            monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(UserError, match=r"pip install 'rtagent\[lerobot\]'"):
        opened("a/folder", factory=LEROBOT)


@pytest.mark.slow
def test_policies_of_lerobot_itself(tmp_path: Path) -> None:
    """Needs the extra `lerobot`."""
    pytest.importorskip("lerobot.policies.act.modeling_act")
    from benchmarks.acting import tiny_lerobot

    observation = np.ones((2, 5), np.float32)
    tiny_lerobot.save(tiny_lerobot.act(5, 2, chunk=8), tmp_path / "act")
    policy = opened(tmp_path / "act", factory=LEROBOT)
    assert len(policy.values(observation)) == 8
    np.testing.assert_array_equal(policy.values(observation), policy.values(observation))
    tiny_lerobot.save(tiny_lerobot.diffusion(5, 2), tmp_path / "diffusion")
    found = opened(tmp_path / "diffusion", factory=LEROBOT).values(observation)
    assert len(found) == 8
    assert np.isfinite(found).all()
