"""Policies of LeRobot (extra `lerobot`), with their processors, as finished policies.

`policy.pretrained` is a folder, or the id of a policy on a hub. A frame that is a vector becomes
the policy's `observation.state`, followed by its `observation.environment_state` if it takes both.
A frame that is a picture becomes its only image, in [0, 1], channels first. A policy that looks at
several observations gets those of the stack: it keeps none of its own, for each inference process
sees only some of them.
"""

from __future__ import annotations

import logging
import os
import socket
import urllib.request
from collections import deque
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy as np
import numpy.typing as npt
import torch
from gymnasium import spaces
from torch import Tensor

from rtagent.errors import UserError
from rtagent.policy.pretrained import Loaded

STATE, ENVIRONMENT, ACTION = "observation.state", "observation.environment_state", "action"
IMAGES = "observation.images"
HUB = "https://huggingface.co"
ENDPOINT, OFFLINE = "HF_ENDPOINT", "HF_HUB_OFFLINE"
"""Environment variables of the hub's library, which reads them when it is imported."""
REACHED_S = 3.0
"""Longest attempt to connect to the hub, in seconds."""


def load(
    observation_space: spaces.Box, action_space: spaces.Space[Any], source: str, device: str,
    task: str | None = None,
) -> Loaded:
    """Load a policy and its processors.

    Args:
        observation_space, action_space, source, device: as for every factory of finished policies.
        task: instruction for the policy, in words. If None, it gets none.

    Raises:
        UserError: the package is missing, or the policy needs what the environment lacks.
    """
    here_only = not Path(source).is_dir() and not hub_reached()
    if here_only:
        # Its library would try again for half a minute. Offline, it still finds what it has cached.
        os.environ[OFFLINE] = "1"
    try:
        from lerobot.configs.policies import PreTrainedConfig
        from lerobot.policies.factory import get_policy_class, make_pre_post_processors
    except ImportError as error:
        raise UserError(
            f"needs the package {error.name or 'lerobot'}: pip install 'rtagent[lerobot]'"
        ) from None
    # It warns many times that there is no network; one error says so in the end.
    logging.getLogger("huggingface_hub").setLevel(logging.ERROR)
    try:
        config = PreTrainedConfig.from_pretrained(source)
    except Exception:
        if not here_only:
            raise
        hub = os.environ.get(ENDPOINT, HUB)
        raise UserError(
            f"is no folder, {hub} cannot be reached, and nothing of that name was kept from it"
        ) from None
    config.device = device
    shapes = {name: tuple(each.shape) for name, each in config.input_features.items()}
    reading = Reading(shapes, observation_space, max(1, getattr(config, "n_obs_steps", 1)))
    _check_actions(tuple(config.output_features[ACTION].shape), action_space)
    policy = get_policy_class(config.type).from_pretrained(source, config=config)
    here = {"device_processor": {"device": device}}
    before, after = make_pre_post_processors(
        config, pretrained_path=source, preprocessor_overrides=here,
        postprocessor_overrides={"device_processor": {"device": "cpu"}},
    )
    return LeRobotPolicy(policy.eval(), before, after, reading, task)


def hub_reached() -> bool:
    """Whether the hub can be connected to; behind a proxy, that is assumed."""
    if os.environ.get(OFFLINE, "").upper() in ("1", "ON", "YES", "TRUE"):
        return False
    hub = urlsplit(os.environ.get(ENDPOINT, HUB))
    if urllib.request.getproxies().get(hub.scheme):
        return True
    try:
        port = hub.port or (80 if hub.scheme == "http" else 443)
        socket.create_connection((hub.hostname or "", port), REACHED_S).close()
    except (OSError, ValueError):
        return False
    return True


class Reading:
    """Makes the inputs of a policy of an observation.

    Args:
        shapes: of the policy's inputs, by name.
        space: of a stacked observation.
        steps: number of observations that the policy looks at.

    Raises:
        UserError: the policy needs what the environment lacks.
    """

    def __init__(self, shapes: dict[str, tuple[int, ...]], space: spaces.Box, steps: int) -> None:
        stack, *frame = space.shape
        self.steps = steps
        if steps > stack:
            raise UserError(
                f"the policy looks at {steps} observations, and env.frame_stack = {stack}; set "
                f"env.frame_stack = {steps}"
            )
        self._parts: dict[str, slice] = {}
        self._image: str | None = None
        names = [name for name in (STATE, ENVIRONMENT) if name in shapes]
        if len(frame) == 1:
            at = 0
            for name in names:
                self._parts[name] = slice(at, at + shapes[name][0])
                at += shapes[name][0]
            fits = at == frame[0] and len(names) == len(shapes)
        else:
            (self._image, *_), wanted = shapes, next(iter(shapes.values()))
            fits = len(shapes) == 1 and wanted in (self._chw(frame), (3, *self._chw(frame)[1:]))
            self._colours = wanted[0]
        if not fits:
            needed = ", ".join(f"{name} {shape}" for name, shape in shapes.items())
            raise UserError(
                f"the policy needs {needed}, and the environment gives {space.dtype} frames of "
                f"{tuple(frame)}"
            )

    @staticmethod
    def _chw(frame: list[int]) -> tuple[int, ...]:
        """(channels, height, width) of (height, width) or (height, width, channels)."""
        return (1, *frame) if len(frame) == 2 else (frame[2], *frame[:2])

    def batches(self, observation: npt.NDArray[Any]) -> list[dict[str, Tensor]]:
        """The inputs for each of the newest `steps` frames, oldest first; each (1, ...) float32."""
        return [self._batch(frame) for frame in observation[-self.steps :]]

    def _batch(self, frame: npt.NDArray[Any]) -> dict[str, Tensor]:
        if self._image is None:
            values = torch.from_numpy(frame.astype(np.float32))[None]
            return {name: values[:, part] for name, part in self._parts.items()}
        pixels = torch.from_numpy(frame.astype(np.float32))
        pixels = pixels[None] if pixels.ndim == 2 else pixels.permute(2, 0, 1)
        picture = pixels.expand(self._colours, *pixels.shape[1:]) / 255.0
        return {self._image: picture[None].contiguous()}


class LeRobotPolicy:
    """A policy between its processors.

    Args:
        policy: a `PreTrainedPolicy`.
        before, after: its processors.
        reading: makes its inputs.
        task: instruction for the policy. If None, it gets none.
    """

    def __init__(
        self, policy: Any, before: Any, after: Any, reading: Reading, task: str | None
    ) -> None:
        self._policy, self._before, self._after, self._reading = policy, before, after, reading
        # The processors tokenize it, for policies that read.
        self._task = {} if task is None else {"task": task}

    def __call__(self, observation: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """(H, components) float32 of one observation, (stack, ...)."""
        with torch.inference_mode():
            read = self._reading.batches(observation)
            batches = [self._before({**batch, **self._task}) for batch in read]
            for batch in batches:
                # The processors add an action that is None.
                batch.pop(ACTION, None)
            if self._reading.steps > 1:
                self._remember(batches)
            (actions,) = self._policy.predict_action_chunk(batches[-1])
            chunk: npt.NDArray[Any] = self._after(actions).float().cpu().numpy()
        return chunk

    def _remember(self, batches: list[dict[str, Any]]) -> None:
        """Put the stack where the policy keeps its past observations."""
        queues = self._policy._queues
        images = [name for name in batches[-1] if name.startswith(f"{IMAGES}.")]
        for batch in batches:
            if images:
                batch[IMAGES] = torch.stack([batch[name] for name in images], dim=-4)
        for name, queue in queues.items():
            if name != ACTION:
                queues[name] = deque((batch[name] for batch in batches), maxlen=queue.maxlen)


def _check_actions(found: tuple[int, ...], action_space: spaces.Space[Any]) -> None:
    if not isinstance(action_space, spaces.Box) or found != action_space.shape:
        raise UserError(
            f"the policy gives actions of {found}, and the environment takes "
            f"{' '.join(str(action_space).split())}"
        )
