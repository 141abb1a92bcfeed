"""The probe: shapes of environment and networks, and what cannot go together."""

from __future__ import annotations

import hashlib
import pickle
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch

from rtagent.config_sources import load_config, parse_config
from rtagent.errors import UserError
from rtagent.evaluation.probe import _resumed, probe, probe_with_weights
from tests.cartridges import REWARDS, ROM
from tests.refused import one_line
from tests.trained import leave_checkpoint


class Boundless(gym.Env[Any, Any]):
    """Any push will do."""

    observation_space = gym.spaces.Box(-1.0, 1.0, (3,), np.float32)
    action_space = gym.spaces.Box(-np.inf, np.inf, (2,), np.float32)


def probed(*settings: str) -> Any:
    """The shapes of a run with these settings."""
    return probe(load_config(None, settings, {}))


@pytest.fixture
def _registered() -> Iterator[None]:
    gym.register("Boundless-v0", Boundless)
    yield
    gym.registry.pop("Boundless-v0")


def test_shapes_of_continuous_actions() -> None:
    found = probed("env.id=Pendulum-v1", "policy.width=2")
    assert (found.action_shape, found.action_dtype) == ((1,), "float32")
    assert found.network == "mlp k=2, td3"
    assert found.parameters == 3 * 128 + 128 + 128 * 128 + 128 + 128 + 1
    critic = 4 * 128 + 128 + 128 * 128 + 128 + 128 + 1
    assert found.learned_parameters == found.parameters + 2 * critic
    assert found.learned_tensors[: len(found.tensors)] == found.tensors


def test_the_environments_own_actions_are_known_without_its_code() -> None:
    found = pickle.loads(pickle.dumps(probed("env.id=Pendulum-v1")))
    assert found.actions.accept([2.0], strict=True) == [2.0]
    with pytest.raises(ValueError, match="is outside"):
        found.actions.accept([2.5], strict=True)
    # A blueprint that has travelled is the same one: a learner elsewhere goes by that.
    assert found == pickle.loads(pickle.dumps(found))


def test_a_cartridge_is_told_apart_from_others(tmp_path: Path) -> None:
    (tmp_path / "rewards.toml").write_text(REWARDS)
    kwargs = {"rom": str(ROM), "rewards": str(tmp_path / "rewards.toml")}
    found = probe(parse_config({"env": {"id": "gameboy", "kwargs": kwargs}}))
    assert found.cartridge == f"STARFALL {hashlib.sha1(ROM.read_bytes()).hexdigest()}"
    assert probed("env.id=CartPole-v1").cartridge == ""


def test_discrete_actions_need_no_critics() -> None:
    found = probed("env.id=CartPole-v1")
    assert found.critics == ()
    assert found.learned_parameters == found.parameters


@pytest.mark.usefixtures("_registered")
@pytest.mark.parametrize(("settings", "said"), [
    (["env.id=Boundless-v0", "env.rate_hz=60"], r"Boundless-v0: .*Box\(-inf, inf, .*needs finite"),
    (["env.id=Pendulum-v1", "learning.algorithm=c51"], "'Pendulum-v1'.*'c51' learns Discrete"),
    (["env.id=CartPole-v1", "learning.algorithm=td3"], "'CartPole-v1'.*'td3' learns cont"),
    (["env.id=Pendulum-v1", "learning.demonstration_margin=0.8"],
     "'Pendulum-v1'.*margin = 0.8: td3 .*set learning.demonstration_margin = 0"),
    *((["env.id=CartPole-v1", "learning.placement=auto", f"learning.algorithm={algorithm}"],
       f"'CartPole-v1'.*placement = 'auto': .* {algorithm} learns here; set learning.placement = "
       "'off'") for algorithm in ("ppo", "a2c")),
])
def test_what_cannot_be_learned_is_refused(settings: list[str], said: str) -> None:
    with one_line(said):
        probed(*settings)


@pytest.mark.parametrize(("world", "algorithm"), [
    *(("CartPole-v1", each) for each in ("auto", "dqn", "double-dqn", "c51")),
    *(("Pendulum-v1", each) for each in ("auto", "td3", "ddpg", "sac")),
])
def test_what_can_be_placed(world: str, algorithm: str) -> None:
    settings = [f"env.id={world}", "learning.placement=auto", f"learning.algorithm={algorithm}"]
    assert probed(*settings).parameters > 0


class Chunks(torch.nn.Module):
    """Answers with the actions of ten ticks."""

    def __init__(self, observations: Any, actions: gym.spaces.Discrete) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(observations.shape[-1], 10 * int(actions.n))

    def forward(self, observations: torch.Tensor) -> torch.Tensor:
        return self.layer(observations[:, -1]).unflatten(1, (10, -1))


CHUNKS = ["env.id=CartPole-v1", f"policy.factory={__name__}:Chunks"]


def test_a_network_that_answers_with_chunks() -> None:
    assert probed(*CHUNKS, "learning.processes=0").chunk == 10
    assert probed("env.id=CartPole-v1").chunk is None


class Continuing(Chunks):
    """A network that is given the actions that are promised already."""

    def __init__(self, inputs: gym.spaces.Dict, actions: gym.spaces.Discrete) -> None:
        super().__init__(inputs["observation"], actions)

    def forward(self, observations: torch.Tensor, pending: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
        assert pending.shape[1:] == (8,)
        return super().forward(observations)


def test_a_network_that_continues_what_is_promised() -> None:
    settings = (
        "env.id=CartPole-v1", f"policy.factory={__name__}:Continuing", "learning.processes=0",
        "policy.chunk=prefix", "env.pending_actions=4",
    )
    assert probed(*settings).chunk == 10


def test_a_network_of_a_factory_is_run_as_it_will_act() -> None:
    with pytest.raises(UserError, match=r"policy.precision = 'bfloat16': policy.factory = .*dtype"):
        probed(*CHUNKS, "learning.processes=0", "policy.precision=bfloat16")


def unflattened(observations: Any, actions: gym.spaces.Discrete) -> torch.nn.Module:
    """Keeps the axis of the frames, of which there is one."""
    return torch.nn.Linear(observations.shape[-1], int(actions.n))


def test_a_network_that_keeps_the_axis_of_the_frames_does_not_learn() -> None:
    settings = ["env.id=CartPole-v1", f"policy.factory={__name__}:unflattened"]
    said = r"chunks of 1 action, \(B, 1, outputs\).*flatten the frames"
    with pytest.raises(UserError, match=said):
        probed(*settings)
    assert probed(*settings, "learning.processes=0").chunk == 1


class Weightless(torch.nn.Module):
    """A rule instead of a network."""

    def __init__(self, observations: Any, actions: gym.spaces.Discrete) -> None:
        super().__init__()
        self.actions = int(actions.n)

    def forward(self, observations: torch.Tensor) -> torch.Tensor:
        return torch.zeros(len(observations), self.actions)


def test_a_network_without_weights_is_refused_in_one_line() -> None:
    settings = ["env.id=CartPole-v1", f"policy.factory={__name__}:Weightless"]
    with one_line(r"no parameters.*policy\.pretrained"):
        probe_with_weights(load_config(None, settings, {}))
    # A policy server shares no weights.
    assert probed(*settings).tensors == ()


class Projected(torch.nn.Module):
    """Random features of the observation, which never change."""

    def __init__(self, actions: int, directions: torch.Tensor, *, persistent: bool) -> None:
        super().__init__()
        self.register_buffer("directions", directions, persistent=persistent)
        self.last = torch.nn.Linear(directions.shape[-1], actions)

    def forward(self, observations: torch.Tensor) -> torch.Tensor:
        seen, directions = observations.flatten(1), self.get_buffer("directions")
        chosen = directions.dtype == torch.int64
        return self.last(seen[:, directions] if chosen else (seen @ directions).sin())  # type: ignore[no-any-return]


class Remembering(Projected):
    state_size = 3

    def forward(  # type: ignore[override]
        self, observations: torch.Tensor, states: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        return super().forward(observations), states


class Noisy(Projected):
    """Draws anew at each call."""

    def forward(self, observations: torch.Tensor) -> torch.Tensor:
        drawn = np.random.default_rng().normal()
        return super().forward(observations) + drawn + torch.randn(())


def forgotten(observations: Any, actions: Any) -> torch.nn.Module:
    return Projected(2, torch.randn(4, 8), persistent=False)


def permuted(observations: Any, actions: Any) -> torch.nn.Module:
    return Projected(2, torch.randperm(4), persistent=True)


def recurrent(observations: Any, actions: Any) -> torch.nn.Module:
    return Remembering(2, torch.randn(4, 8), persistent=False)


def kept(observations: Any, actions: Any) -> torch.nn.Module:
    return Remembering(2, torch.randn(4, 8), persistent=True)


def seeded(observations: Any, actions: Any) -> torch.nn.Module:
    drawn = torch.randn(4, 8, generator=torch.Generator().manual_seed(3))
    return Projected(2, drawn, persistent=False)


def noisy(observations: Any, actions: Any) -> torch.nn.Module:
    return Noisy(2, torch.randn(4, 8), persistent=True)


@pytest.mark.parametrize("factory", [forgotten, permuted, recurrent])
def test_a_network_whose_random_numbers_other_processes_would_not_have_is_refused(
    factory: Any
) -> None:
    with one_line(f"{factory.__name__}.*answer differently.*register_buffer"):
        probed("env.id=CartPole-v1", f"policy.factory={__name__}:{factory.__name__}")


@pytest.mark.parametrize("factory", [kept, seeded, noisy])
def test_random_numbers_that_each_process_has_are_taken(factory: Any) -> None:
    assert probed("env.id=CartPole-v1", f"policy.factory={__name__}:{factory.__name__}").tensors


def raises(observations: Any, actions: Any) -> torch.nn.Module:
    raise RuntimeError("no such layers here")


def test_a_factory_that_raises_is_one_line() -> None:
    with one_line(r"raises.*no such layers here"):
        probed("env.id=CartPole-v1", f"policy.factory={__name__}:raises")


@pytest.mark.parametrize(("function", "said"), [
    ("math:sqrt", "TypeError: "), ("builtins:print", "ValueError: .*:print answered: .* got None"),
])
def test_a_default_behaviour_that_cannot_answer_is_refused_before_the_world_needs_it(
    function: str, said: str
) -> None:
    config = load_config(overrides=["env.id=CartPole-v1", f"env.default_action={function}"])
    with pytest.raises(UserError, match=f"^env.default_action fails on a frame of zeros: {said}"):
        probe(config)


def test_the_value_beside_a_factory_is_not_recurrent() -> None:
    settings = [
        "env.id=CartPole-v1", f"policy.factory={__name__}:Chunks", "policy.network=lstm",
        "learning.algorithm=ppo",
    ]
    with pytest.raises(UserError, match=r"policy\.network = 'lstm' beside policy.factory"):
        probed(*settings)


@pytest.mark.parametrize(("settings", "said"), [
    ([], "learning.processes = 1: .*chunks of 10 actions.*set learning.processes = 0"),
    (["learning.processes=0", "policy.engine=onnxruntime"], "policy.engine = 'onnxruntime'"),
    (["learning.processes=0", "policy.chunk=ensemble"], "discrete actions have no mean"),
])
def test_chunks_are_for_acting(settings: list[str], said: str) -> None:
    with one_line(said):
        probed(*CHUNKS, *settings)


def plain(observations: Any, actions: gym.spaces.Discrete) -> torch.nn.Module:
    """A network of one layer."""
    return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(4, int(actions.n)))


def deeper(observations: Any, actions: gym.spaces.Discrete) -> torch.nn.Module:
    """The same network with one more layer."""
    return torch.nn.Sequential(*plain(observations, actions), torch.nn.Linear(2, 2))


@pytest.mark.parametrize(("before", "after", "settings", "said"), [
    (deeper, plain, (), r"a tensor online\.2\.\w+ too many"),
    (plain, deeper, (), r"no tensor online\.2\."),
    (plain, plain, ("learning.algorithm=ppo", "policy.width=2"), r"no tensor online\.value\."),
])
def test_a_checkpoint_whose_network_was_built_otherwise_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, before: Any, after: Any,
    settings: Sequence[str], said: str,
) -> None:
    """A learner refused it, when the world was ticking, and layers too many were left out without a
    word: the name of the network is that of the factory alone."""
    monkeypatch.setattr(f"{__name__}.factory", before, raising=False)
    made = ["env.id=CartPole-v1", f"policy.factory={__name__}:factory", *settings[:1]]
    path = leave_checkpoint(tmp_path, *made)
    config = load_config(None, made, {})
    assert _resumed(config, probe(config), path.parent) == (path, [])
    monkeypatch.setattr(f"{__name__}.factory", after)
    other = load_config(None, [*made, *settings[1:]], {})
    with one_line(rf"{said}.*built otherwise.*--set run\.resume=false"):
        _resumed(other, probe(other), path.parent)
