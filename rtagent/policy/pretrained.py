"""Finished policies, which act and do not learn: from a file, a folder or a hub.

A factory loads them: that of `exported.py` for files, that of `lerobot.py`, or a user's own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
from gymnasium import spaces

from rtagent.config import PolicyConfig
from rtagent.errors import UserError
from rtagent.memory.array_buffer import Floats
from rtagent.policy.factory import imported, line_of
from rtagent.policy.networks import outputs_of

EXPORTED = "rtagent.policy.exported:load"
Loaded = Callable[[npt.NDArray[Any]], npt.NDArray[Any]]
"""What a factory of finished policies returns: it answers one observation, (stack, ...).

Observations are uint8 or float32. An answer is (outputs,): values of discrete actions, or the
components of a continuous one; or (H, outputs) for consecutive ticks.
"""


class PretrainedPolicy:
    """A finished policy, tried once.

    Args:
        policy: its `pretrained`, `factory`, `device` and `task`.
        observation_space: Box of a stacked observation.
        action_space: Discrete, or a flat Box.

    Attributes:
        answers_actions: its actions are executed without exploration.

    Raises:
        UserError: it cannot be loaded, or does not fit the spaces.
    """

    answers_actions = True

    def __init__(
        self, policy: PolicyConfig, observation_space: spaces.Space[Any],
        action_space: spaces.Space[Any],
    ) -> None:
        assert policy.pretrained is not None
        self._name = f"policy.pretrained = {policy.pretrained!r}"
        self._outputs = outputs_of(action_space)
        load = imported(policy.factory or EXPORTED)
        told = {} if policy.task is None else {"task": policy.task}
        try:
            self._ask: Loaded = load(
                observation_space, action_space, policy.pretrained, policy.device, **told
            )
        except UserError as error:
            raise UserError(f"{self._name}: {error}") from error
        except Exception as error:
            raise UserError(f"{self._name} cannot be loaded: {line_of(error)}") from error
        self._zeros = np.zeros(observation_space.shape or (), observation_space.dtype)
        self._try_out()

    def values(self, observation: npt.NDArray[Any]) -> Floats:
        """The answer to an observation, for the next H ticks.

        Args:
            observation: (stack, ...) uint8 or float32.

        Returns:
            (H, outputs) float32.
        """
        return np.atleast_2d(np.asarray(self._ask(observation), np.float32))

    def warm_up(self) -> None:
        """Call the policy: its first call takes several times as long as later ones."""
        for _ in range(3):
            self.values(self._zeros)

    def _try_out(self) -> None:
        shape = self._zeros.shape
        try:
            answer = self.values(self._zeros)
        except Exception as error:
            raise UserError(
                f"{self._name} fails on {self._zeros.dtype} observations of the shape {shape}: "
                f"{line_of(error)}"
            ) from error
        if answer.ndim != 2 or answer.shape[1] != self._outputs or not len(answer):
            raise UserError(
                f"{self._name} answers an observation with {answer.shape}, not with "
                f"({self._outputs},) or (ticks, {self._outputs})"
            )
