"""The built-in networks.

They take uint8 pixels and convert them to [0, 1] themselves: converted where batches are sampled,
pixels would take twelve times as long to copy.
"""

from __future__ import annotations

from abc import abstractmethod
from math import prod

import torch
from torch import Tensor, nn
from torch.nn import functional

from rtagent.policy.heads import AnyHead
from rtagent.policy.pixels import laid_out, scaled
from rtagent.policy.pooling import MaxPool

HIDDEN = 512
"""Features of the last hidden layer of the networks for images."""


class TooSmall(ValueError):
    """The convolutions leave nothing of the image."""


class PolicyModule(nn.Module):
    """Base of the built-in networks.

    Each takes the shape of an observation, (stack, height, width) where it is an image; the number
    of actions, or of the components of one; the factor from observations to [0, 1]; a head; and how
    many numbers the pending actions are, 0 for none.

    `encode`, which takes most of the time, is given the observation alone. `decide` appends the
    pending actions to its features, before the last hidden layer. So a caller can look the pending
    actions up between the two.

    Attributes:
        values: the head; it always computes in float32, whatever the layers before it do, for
            the values of actions often differ by less than bfloat16 can tell apart.
    """

    hidden: nn.Linear
    values: nn.Module

    def __init__(self, scale: float, *, image: bool) -> None:
        super().__init__()
        self._scale = scale
        self._image = image

    def forward(self, observations: Tensor, pending: Tensor | None = None) -> Tensor:
        """(B, *shape), and (B, pending) in a run with pending actions, to the head's output."""
        return self.decide(self.encode(observations), pending)

    @abstractmethod
    def encode(self, observations: Tensor) -> Tensor:
        """(B, *shape) to features (B, n)."""

    def decide(self, features: Tensor, pending: Tensor | None = None) -> Tensor:
        """The rest of the network: by default one hidden layer and the head."""
        return self._answer(functional.relu(self.hidden(beside(features, pending))))

    def _prepare(self, observations: Tensor, weight: Tensor) -> Tensor:
        """Bring (B, *shape) to the type of the arithmetic, and pixels to [0, 1]."""
        device, dtype = observations.device.type, weight.dtype
        if torch.is_autocast_enabled(device):
            # bfloat16 has every byte exactly; a conversion over float32 takes a pass more.
            dtype = torch.get_autocast_dtype(device)
        if observations.ndim == 5:
            # (B, stack, height, width, colours): each colour of each frame is a channel.
            observations = observations.permute(0, 1, 4, 2, 3).flatten(1, 2)
        if self._image:
            return laid_out(observations, dtype, self._scale)
        return scaled(observations, dtype, self._scale)

    def _answer(self, features: Tensor) -> Tensor:
        """Apply the head to (B, features)."""
        device, features = features.device.type, features.float()
        if not torch.is_autocast_enabled(device):
            return self.values(features)  # type: ignore[no-any-return]
        with torch.autocast(device, enabled=False):
            return self.values(features)  # type: ignore[no-any-return]


def beside(features: Tensor, pending: Tensor | None) -> Tensor:
    """Features (B, n) and the pending actions (B, m), if there are any, as (B, n + m)."""
    if pending is None:
        return features
    return torch.cat([features, pending.to(features.dtype)], dim=1)


class ResidualBlock(nn.Module):
    """Two pre-activation 3x3 convolutions and a shortcut."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(channels, channels, 3, padding=1)
        self.second = nn.Conv2d(channels, channels, 3, padding=1)

    def forward(self, inputs: Tensor) -> Tensor:
        hidden = self.second(functional.relu(self.first(functional.relu(inputs))))
        return inputs + hidden  # type: ignore[no-any-return]


class ResNet(PolicyModule):
    """The 15-layer residual network of the Realtime RL paper, width k.

    Three stages of a valid 3x3 convolution (16k, 32k, 32k channels), a 3x3 max-pool of stride 2
    without padding and two residual blocks; ReLU, flatten, linear 512 per stream of the head,
    ReLU, head.

    Raises:
        TooSmall: the frames are too small.
    """

    def __init__(
        self, shape: tuple[int, ...], actions: int, width: int, scale: float, head: AnyHead,
        pending: int,
    ) -> None:
        super().__init__(scale, image=True)
        channels, height, breadth = shape
        layers: list[nn.Module] = []
        for wanted in (16 * width, 32 * width, 32 * width):
            layers += [
                nn.Conv2d(channels, wanted, 3), MaxPool(),
                ResidualBlock(wanted), ResidualBlock(wanted),
            ]
            channels, height, breadth = wanted, (height - 5) // 2 + 1, (breadth - 5) // 2 + 1
        if min(height, breadth) < 1:
            raise TooSmall
        self.stages = nn.Sequential(*layers)
        self.hidden = nn.Linear(channels * height * breadth + pending, head.streams * HIDDEN)
        self.values = head.layer(HIDDEN, actions)

    def encode(self, observations: Tensor) -> Tensor:
        features = self.stages(self._prepare(observations, self.hidden.weight))
        return functional.relu(features).flatten(1)


class NatureCnn(PolicyModule):
    """The convolutional network of the DQN paper (Mnih et al., 2015).

    Raises:
        TooSmall: the frames are too small.
    """

    def __init__(
        self, shape: tuple[int, ...], actions: int, scale: float, head: AnyHead, pending: int = 0
    ) -> None:
        super().__init__(scale, image=True)
        channels, height, breadth = shape
        layers: list[nn.Module] = []
        for wanted, kernel, stride in ((32, 8, 4), (64, 4, 2), (64, 3, 1)):
            layers += [nn.Conv2d(channels, wanted, kernel, stride), nn.ReLU()]
            channels = wanted
            height, breadth = (height - kernel) // stride + 1, (breadth - kernel) // stride + 1
        if min(height, breadth) < 1:
            raise TooSmall
        self.features = nn.Sequential(*layers)
        self.hidden = nn.Linear(channels * height * breadth + pending, head.streams * HIDDEN)
        self.values = head.layer(HIDDEN, actions)

    def encode(self, observations: Tensor) -> Tensor:
        features: Tensor = self.features(self._prepare(observations, self.hidden.weight))
        return features.flatten(1)


class Mlp(PolicyModule):
    """Two hidden layers over the flattened observation, pending actions included.

    Each has `hidden` units, the second as many for each stream of the head.
    """

    def __init__(
        self, shape: tuple[int, ...], actions: int, hidden: int, scale: float,
        head: AnyHead, pending: int,
    ) -> None:
        super().__init__(scale, image=False)
        self.layers = nn.Sequential(
            nn.Linear(prod(shape) + pending, hidden), nn.ReLU(),
            nn.Linear(hidden, head.streams * hidden), nn.ReLU(),
        )
        self.values = head.layer(hidden, actions)

    def encode(self, observations: Tensor) -> Tensor:
        first: nn.Linear = self.layers[0]  # type: ignore[assignment]
        return self._prepare(observations, first.weight).flatten(1)

    def decide(self, features: Tensor, pending: Tensor | None = None) -> Tensor:
        return self._answer(self.layers(beside(features, pending)))


def channels_last(module: nn.Module) -> nn.Module:
    """Lay out the convolutions' weights channels last, which CPUs prefer; in place."""
    return module.to(memory_format=torch.channels_last)  # type: ignore[call-overload,no-any-return]
