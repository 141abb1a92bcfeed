"""A small transformer over the last frames.

It carries no state from one inference to the next. Every process sees the last `env.frame_stack`
frames in the frame ring, whether other inferences have ended or not. So no state lags behind, and
every algorithm can train it without changes.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from math import prod

import torch
from torch import Tensor, nn

from rtagent.policy.architectures import NatureCnn, PolicyModule
from rtagent.policy.heads import FEATURES, AnyHead

LAYERS = 2
HEADS = 4


class Transformer(PolicyModule):
    """Each frame is a token; two causal layers of attention; the newest frame's token decides.

    Layers are normalised first (Xiong et al., On Layer Normalization in the Transformer
    Architecture, ICML 2020), positions are learned, and there is no dropout.

    Args:
        shape: of an observation: (frames, n), (frames, height, width) or (..., width, colours).
        actions: number of actions.
        width: length of a token, and units of the hidden layer for each stream of the head.
        scale: factor from observations to [0, 1].
        head: of the network.
        pending: how many numbers the pending actions are.

    Raises:
        TooSmall: the frames are images, and too small.
    """

    def __init__(
        self, shape: tuple[int, ...], actions: int, width: int, scale: float, head: AnyHead,
        pending: int,
    ) -> None:
        super().__init__(scale, image=False)
        frames, *frame = shape
        self._cnn: NatureCnn | None = None
        if len(frame) > 1:
            channels = frame[2] if len(frame) > 2 else 1
            self._cnn = NatureCnn((channels, *frame[:2]), 0, scale, FEATURES)
            self.embedding = nn.Linear(self._cnn.hidden.out_features, width)
        else:
            self.embedding = nn.Linear(prod(frame), width)
        self.places = nn.Parameter(torch.zeros(frames, width))
        nn.init.normal_(self.places, std=0.02)
        layer = nn.TransformerEncoderLayer(
            width, HEADS, 4 * width, dropout=0.0, batch_first=True, norm_first=True
        )
        self.layers = nn.TransformerEncoder(
            layer, LAYERS, nn.LayerNorm(width), enable_nested_tensor=False
        )
        self.hidden = nn.Linear(width + pending, head.streams * width)
        self.values = head.layer(width, actions)

    def encode(self, observations: Tensor) -> Tensor:
        count, frames = observations.shape[:2]
        if self._cnn is None:
            tokens = self._prepare(observations, self.embedding.weight).flatten(2)
        else:
            # The convolutions see each frame by itself; colours are its channels.
            pictures = observations.flatten(0, 1).unsqueeze(1)
            tokens = self._cnn(pictures).view(count, frames, -1).to(self.embedding.weight.dtype)
        inputs = self.embedding(tokens) + self.places
        later = torch.ones(frames, frames, dtype=torch.bool, device=inputs.device).triu(1)
        # Told nothing, torch looks at the mask, which a program to be exported does not know.
        answer: Tensor = self.layers(inputs, mask=later, is_causal=False)[:, -1]
        return answer


@contextmanager
def plain_attention() -> Iterator[None]:
    """Without torch's fused layers of attention, which no other program knows."""
    fused = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        yield
    finally:
        torch.backends.mha.set_fastpath_enabled(fused)
