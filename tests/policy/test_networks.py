"""Networks: sizes, scaling, factories, weights in and out, acting."""

from __future__ import annotations

import re
import sys
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import nn

from rtagent.config import PolicyConfig
from rtagent.errors import UserError
from rtagent.policy import networks
from rtagent.policy.acting import ActingPolicy
from rtagent.policy.architectures import Mlp, NatureCnn, ResNet, channels_last
from rtagent.policy.heads import PLAIN, ActionHead, Head, Support
from tests.refused import one_line

ACTIONS = spaces.Discrete(6)
IMAGES = spaces.Box(0, 255, (4, 84, 84), np.uint8)
VECTORS = spaces.Box(-1, 1, (1, 5), np.float32)
TINY = spaces.Box(0, 255, (4, 9, 7), np.uint8)


@pytest.mark.parametrize(
    ("width", "parameters"), [(1, 903_718), (7, 10_368_742), (29, 104_682_918), (98, 1_008_092_742)]
)
def test_resnet_has_the_papers_size(width: int, parameters: int) -> None:
    one_channel = spaces.Box(0, 255, (1, 84, 84), np.uint8)
    with torch.device("meta"):
        module = networks.build(PolicyConfig(network="resnet", width=width), one_channel, ACTIONS)
    assert sum(p.numel() for p in module.parameters()) == parameters


@pytest.mark.parametrize("name", ["resnet", "nature", "mlp"])
def test_pixels_are_scaled_inside(name: Any) -> None:
    module = networks.build(PolicyConfig(network=name), IMAGES, ACTIONS)
    as_floats = networks.build(
        PolicyConfig(network=name), spaces.Box(0, 1, IMAGES.shape, np.float32), ACTIONS
    )
    as_floats.load_state_dict(module.state_dict())
    pixels = torch.randint(0, 256, (3, *IMAGES.shape), dtype=torch.uint8)
    with torch.no_grad():
        torch.testing.assert_close(module(pixels), as_floats(pixels.float() / 255))


def test_auto_fits_the_observations() -> None:
    assert isinstance(networks.build(PolicyConfig(), IMAGES, ACTIONS), NatureCnn)
    mlp = networks.build(PolicyConfig(width=3), VECTORS, ACTIONS)
    assert isinstance(mlp, Mlp)
    assert mlp.values.in_features == 192
    assert networks.describe(PolicyConfig(width=3), VECTORS) == "mlp k=3"
    assert networks.describe(PolicyConfig(), IMAGES) == "nature"


@pytest.mark.parametrize(
    ("policy", "space", "said"),
    [
        (PolicyConfig(network="nature"), VECTORS, "needs images"),
        (PolicyConfig(), TINY, "too small for it; set a larger env.image_size, or .* = 'mlp'"),
        (PolicyConfig(network="resnet"), TINY, "'resnet': frames of 9x7 are too small"),
        (PolicyConfig(network="lstm"), TINY, "'lstm': frames of 9x7 are too small"),
        (PolicyConfig(network="transformer"), TINY, "'transformer': frames of 9x7 are too small"),
    ],
)
def test_misfits_are_refused(policy: PolicyConfig, space: Any, said: str) -> None:
    with pytest.raises(UserError, match=said):
        networks.build(policy, space, ACTIONS)


BOX = spaces.Box(np.float32([-1.0, 0.7]), np.float32([1.0, 0.9]))
ACTOR = ActionHead((-1.0, 0.7), (1.0, 0.9))


@pytest.mark.parametrize("continuous", [False, True])
@pytest.mark.parametrize(
    ("name", "space"), [("resnet", IMAGES), ("nature", IMAGES), ("mlp", VECTORS)]
)
def test_it_acts_as_it_has_learned(name: Any, space: spaces.Box, continuous: bool) -> None:
    torch.manual_seed(3)
    policy = PolicyConfig(network=name)
    actions: tuple[Any, Any] = (BOX, ACTOR) if continuous else (ACTIONS, PLAIN)
    learner = networks.build(policy, space, *actions)
    precision: Any = "bfloat16" if name == "resnet" else "float32"
    acting = ActingPolicy(policy, space, *actions, precision=precision)
    acting.warm_up()
    before = {name: t.data_ptr() for name, t in acting.module.state_dict().items()}
    acting.load(networks.flattened(learner))
    observation = space.sample()
    answer = acting.values(observation)
    with torch.no_grad():
        wanted = learner(torch.from_numpy(observation).unsqueeze(0))[0].numpy()
    assert (answer.dtype, answer.shape) == (np.float32, (2 if continuous else 6,))
    np.testing.assert_allclose(answer, wanted, atol=0.02 if name == "resnet" else 1e-4)
    assert before == {name: t.data_ptr() for name, t in acting.module.state_dict().items()}


def test_bounds_are_no_weights() -> None:
    """In bfloat16, 0.7 and 0.9 would be rounded."""
    acting = ActingPolicy(PolicyConfig(network="resnet"), IMAGES, BOX, ACTOR, "bfloat16")
    with torch.no_grad():
        acting.module.values[0].bias.copy_(torch.tensor([-99.0, 99.0]))
        acting.module.values[0].weight.zero_()
    assert acting.values(IMAGES.sample()).tolist() == [-1.0, np.float32(0.9)]


class WithBatchNorm(nn.Module):
    """A user's module with integer state beside its weights."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Flatten(), nn.BatchNorm1d(5), nn.Linear(5, 6))

    def forward(self, observations: torch.Tensor) -> torch.Tensor:
        return self.layers(observations)  # type: ignore[no-any-return]


class WithExtraState(WithBatchNorm):
    """Torch keeps what `get_extra_state` returns with the weights, whatever it is."""

    def get_extra_state(self) -> dict[str, int]:
        return {"seen": 3}


class Complex(nn.Module):
    """Joins real and imaginary parts."""

    def forward(self, parts: torch.Tensor) -> torch.Tensor:
        return torch.view_as_complex(parts)


@pytest.fixture(autouse=True)
def factories(monkeypatch: pytest.MonkeyPatch) -> None:
    """What users may have written, as the module `user_policies`."""
    module = ModuleType("user_policies")

    def fails(*_: object) -> None:
        raise RuntimeError("first line\nthe cause")

    vars(module).update(
        good=lambda observations, actions: WithBatchNorm(),
        number=3,
        fails=fails,
        not_a_module=lambda *_: 3,
        wrong_shape=lambda *_: nn.Sequential(nn.Flatten(), nn.Linear(5, 4)),
        fails_forward=lambda *_: nn.Linear(77, 6),
        complex=lambda *_: nn.Sequential(
            nn.Flatten(), nn.Linear(5, 6), nn.Linear(6, 6, dtype=torch.complex64)
        ),
        extra_state=lambda *_: nn.Sequential(WithExtraState()),
        in_place=lambda *_: nn.Sequential(nn.ReLU(inplace=True), nn.Flatten(), nn.Linear(5, 6)),
        script=lambda *_: nn.Sequential(nn.Linear(5, 6), torch.jit.ScriptModule()),
        complex_answer=lambda *_: nn.Sequential(
            nn.Flatten(), nn.Linear(5, 12), nn.Unflatten(1, (6, 2)), Complex()
        ),
        half=lambda *_: nn.Sequential(nn.Flatten(), nn.Linear(5, 6)).half(),
        frozen=lambda *_: nn.Sequential(
            nn.Flatten(), nn.BatchNorm1d(5).eval(), nn.Linear(5, 6), nn.Dropout()
        ),
        steers=lambda *_: nn.Sequential(nn.Flatten(), nn.Linear(5, 2), nn.Tanh()),
        logits=lambda *_: nn.Sequential(
            nn.Flatten(), nn.Linear(5, 6 * 11), nn.Unflatten(1, (6, 11))
        ),
    )
    monkeypatch.setitem(sys.modules, "user_policies", module)


def test_factory_is_used() -> None:
    policy = PolicyConfig(factory="user_policies:good")
    module = networks.build(policy, VECTORS, ACTIONS)
    assert isinstance(module, WithBatchNorm)
    assert module.training
    assert networks.describe(policy, VECTORS) == "user_policies:good"


def test_a_factory_may_give_another_precision() -> None:
    module = networks.build(PolicyConfig(factory="user_policies:half"), VECTORS, ACTIONS)
    assert module(torch.zeros(3, 1, 5)).dtype == torch.float32


def test_layers_keep_the_mode_in_which_the_factory_left_them() -> None:
    module = networks.build(PolicyConfig(factory="user_policies:frozen"), VECTORS, ACTIONS)
    modes = {type(each).__name__: each.training for each in module.children()}
    assert modes == {"Flatten": True, "BatchNorm1d": False, "Linear": True, "Dropout": True}
    assert module.training


@pytest.mark.parametrize(
    ("factory", "said"),
    [
        ("no_such_package:f", "cannot be imported.*no_such_package.*PYTHONPATH"),
        ("user_policies:absent", "cannot be imported.*absent"),
        ("user_policies:number", "not callable"),
        ("user_policies:fails", "RuntimeError: the cause"),
        ("user_policies:not_a_module", "returned int"),
        ("user_policies:wrong_shape", r"\(2, 4\).*\(2, 6\)"),
        ("user_policies:fails_forward", "the module fails on"),
        ("user_policies:complex", "2.weight is complex, and weights are kept as real numbers"),
        ("user_policies:extra_state", "0._extra_state is a dict.*register_buffer"),
        ("user_policies:complex_answer", r"to torch.complex64, not to \(2, 6\)$"),
        ("user_policies:in_place", "changes its inputs in place"),
        ("user_policies:script", "TorchScript.*return the module that it was made of"),
    ],
)
def test_bad_factories_are_one_clear_line(factory: str, said: str) -> None:
    with one_line(said, re.escape(factory)):
        networks.build(PolicyConfig(factory=factory), VECTORS, ACTIONS)


def test_a_factory_for_c51_gives_logits() -> None:
    head = Head(support=Support(11, -1.0, 1.0))
    policy = PolicyConfig(factory="user_policies:logits")
    answer = networks.build(policy, VECTORS, ACTIONS, head)(torch.zeros(3, 1, 5))
    assert answer.shape == (3, 6, 11)
    name = networks.describe(policy, VECTORS, head)
    assert name == "user_policies:logits, c51 of 11 atoms from -1 to 1"


@pytest.mark.parametrize(
    ("factory", "head", "said"),
    [
        ("good", Head(support=Support(11, -1.0, 1.0)), r"\(2, 6\), not to \(2, 6, 11\).*c51"),
        ("logits", Head(support=Support(51, -1.0, 1.0)), r"\(2, 6, 11\), not to \(2, 6, 51\)"),
        ("logits", Head(), r"\(2, 6, 11\), not to \(2, 6\)$"),
        ("good", Head(dueling=True), "learning.dueling = true.*set learning.dueling = false"),
    ],
)
def test_a_factory_whose_head_is_another_is_refused(factory: str, head: Head, said: str) -> None:
    policy = PolicyConfig(factory=f"user_policies:{factory}")
    with one_line(said, f"user_policies:{factory}"):
        networks.build(policy, VECTORS, ACTIONS, head)


def test_a_factory_for_continuous_actions_gives_actions() -> None:
    policy = PolicyConfig(factory="user_policies:steers")
    assert networks.build(policy, VECTORS, BOX, ACTOR)(torch.zeros(3, 1, 5)).shape == (3, 2)
    assert networks.describe(policy, VECTORS, ACTOR) == "user_policies:steers, td3"
    with pytest.raises(UserError, match=r"\(2, 6\), not to \(2, 2\)"):
        networks.build(PolicyConfig(factory="user_policies:good"), VECTORS, BOX, ACTOR)


@pytest.mark.parametrize("last", [False, True])
def test_weights_go_out_and_in(last: bool) -> None:
    torch.manual_seed(0)
    source = networks.build(PolicyConfig(network="resnet"), IMAGES, ACTIONS)
    target = networks.build(PolicyConfig(network="resnet"), IMAGES, ACTIONS)
    if last:
        channels_last(source)
    flat = networks.flattened(source)
    networks.load_flat(target, flat)
    for mine, theirs in zip(source.parameters(), target.parameters(), strict=True):
        assert torch.equal(mine, theirs)
    first = next(iter(source.parameters())).detach().numpy()
    np.testing.assert_array_equal(flat[: first.size], first.reshape(-1))


def test_integer_state_stays_out_of_the_buffers() -> None:
    names = [spec.name for spec in networks.tensor_specs(WithBatchNorm())]
    assert "layers.1.running_mean" in names
    assert "layers.1.num_batches_tracked" not in names


def test_a_flat_buffer_of_another_size_is_refused() -> None:
    module = networks.build(PolicyConfig(), VECTORS, ACTIONS)
    with pytest.raises(ValueError, match="3 values for a network"):
        networks.load_flat(module, np.zeros(3, np.float32))


@pytest.mark.parametrize("dueling", [False, True])
def test_acting_on_distributions_gives_their_means(dueling: bool) -> None:
    torch.manual_seed(0)
    head = Head(dueling, Support(11, -2.0, 3.0))
    acting = ActingPolicy(PolicyConfig(), VECTORS, ACTIONS, head)
    observation = np.linspace(-1, 1, 5, dtype=np.float32)[None]
    answer = acting.values(observation)
    with torch.no_grad():
        masses = acting.module(torch.from_numpy(observation)[None])[0].softmax(dim=1).numpy()
    support = np.linspace(-2, 3, 11)
    wanted = [sum(m * z for m, z in zip(row, support, strict=True)) for row in masses]
    assert answer.dtype == np.float32
    assert answer.shape == (6,)
    np.testing.assert_allclose(answer, wanted, atol=1e-5)


@pytest.mark.parametrize("name", ["resnet", "nature"])
def test_autocast_sees_the_same_pixels(name: Any) -> None:
    torch.manual_seed(0)
    module = networks.build(PolicyConfig(network=name), IMAGES, ACTIONS)
    pixels = torch.randint(0, 256, (3, *IMAGES.shape), dtype=torch.uint8)
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        low = module(pixels)
    with torch.no_grad():
        full = module(pixels)
    assert low.dtype == torch.float32
    torch.testing.assert_close(low, full, atol=0.02, rtol=0.02)


@pytest.mark.parametrize("acting", [False, True])
def test_actions_that_are_nearly_alike_are_told_apart(acting: bool) -> None:
    policy = PolicyConfig(network="resnet")
    made = ActingPolicy(policy, IMAGES, ACTIONS, precision="bfloat16")
    module = made.module if acting else networks.build(policy, IMAGES, ACTIONS)
    wanted = 100.0 + 0.01 * torch.arange(6)
    with torch.no_grad():
        module.values.weight.zero_()
        module.values.bias.copy_(wanted)
    pixels = np.zeros(IMAGES.shape, np.uint8)
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16, enabled=not acting):
        found = made.values(pixels) if acting else module(torch.from_numpy(pixels)[None])[0].numpy()
    np.testing.assert_allclose(found, wanted.numpy(), rtol=1e-6)


@pytest.mark.skipif(torch.cuda.is_available(), reason="asks for a device that is not there")
def test_an_absent_device_is_refused() -> None:
    with pytest.raises(UserError, match="cuda:1"):
        ActingPolicy(PolicyConfig(device="cuda:1"), VECTORS, ACTIONS)


@pytest.mark.gpu
@pytest.mark.parametrize("name", ["resnet", "nature"])
def test_acting_on_a_gpu_answers_like_the_processor(name: Any) -> None:
    assert torch.cuda.is_available()
    here = ActingPolicy(PolicyConfig(network=name), IMAGES, ACTIONS)
    there = ActingPolicy(PolicyConfig(network=name, device="cuda"), IMAGES, ACTIONS)
    there.load(networks.flattened(here.module))
    there.warm_up()
    observation = np.random.default_rng(0).integers(0, 256, IMAGES.shape, np.uint8)
    np.testing.assert_allclose(
        there.values(observation), here.values(observation), rtol=1e-2, atol=1e-2
    )


def test_colours_are_channels() -> None:
    """Of a stack of two frames in colours."""
    space = spaces.Box(0, 255, (2, 48, 40, 3), np.uint8)
    torch.manual_seed(0)
    network = networks.build(PolicyConfig(network="nature"), space, spaces.Discrete(5))
    assert isinstance(network, NatureCnn)
    frames = torch.randint(0, 256, (7, 2, 48, 40, 3), dtype=torch.uint8)
    channels = torch.cat([frames[:, at, :, :, colour][:, None] for at in range(2)
                          for colour in range(3)], dim=1)
    with torch.inference_mode():
        torch.testing.assert_close(network(frames), network(channels))
        assert network(frames).shape == (7, 5)
    assert isinstance(
        networks.build(PolicyConfig(network="resnet"), space, spaces.Discrete(5)), ResNet
    )
