"""What the benchmark `replay` compares: our replay, those of Stable-Baselines3, cpprb and TorchRL.

Each is filled with stacks of four 84x84 uint8 frames, of which the pictures repeat; each hands out
tensors.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from benchmarks.worlds.pattern_world import EPISODE, PatternWorld
from benchmarks.worlds.shapes import STACK, blueprint
from rtagent.config import LearningConfig
from rtagent.config_sources import load_config
from rtagent.errors import UserError
from rtagent.learning.replay.batch import BatchBuffer
from rtagent.learning.replay.look_up import Ints
from rtagent.learning.replay.replay import Replay

PICTURES = 512
ALPHA, BETA = 0.6, 0.4
SHARED = ("frames", "ledger", "priorities")

Draw = Callable[[int], object]


class Ours:
    """Rings and priorities as the supervisor lays them out, and the replays of two learners."""

    def __init__(self, pictures: np.ndarray, count: int) -> None:
        # The guard and the frames of the first stack are no states.
        capacity = count + 16
        settings = [
            f"replay.capacity={capacity}", "learning.learning_starts=1", "learning.n_step=1",
            "learning.prioritized=true", f"learning.priority_exponent={ALPHA}",
        ]
        self._config = load_config(overrides=settings)
        self._pattern = PatternWorld(self._config, blueprint(), capacity + 32, pictures)
        self._rng = np.random.default_rng(1)
        self.uniform = self._replay(self._config.learning, shared=False)
        self.steps8 = self._replay(
            self._config.learning.model_copy(update={"n_step": 8}), shared=False
        )
        self.prioritized = self._replay(self._config.learning, shared=True)

    def _replay(self, learning: LearningConfig, *, shared: bool) -> Replay:
        world = self._pattern.world
        priorities = world.priorities if shared else None
        return Replay(world.frames, world.ledger, learning, priorities)

    def draw(self, replay: Replay) -> Draw:
        """Draws batches from one of the replays; each draw first takes in what is new."""
        replay.catch_up()

        def batch(size: int) -> object:
            replay.refresh()
            found = replay.sample(size, self._rng, BETA)
            assert found is not None
            return found

        return batch

    def draw_and_update(self, size: int) -> None:
        """A prioritized batch, and new errors for it."""
        self.prioritized.refresh()
        batch = self.prioritized.sample(size, self._rng, BETA)
        assert batch is not None
        self.prioritized.update_priorities(batch, torch.from_numpy(self._rng.random(size)))

    def filled(self) -> Ours:
        """Let a prioritized learner take in everything; returns itself."""
        self.draw(self.prioritized)
        return self

    def shared_bytes(self) -> int:
        """Bytes that the kernel holds for the shared part."""
        pages = self._pattern.memory.pages()
        return sum(pages[name] for name in SHARED)


class BothStacks(BatchBuffer):
    """Copies state and successor each by itself, as the peers do, though they overlap."""

    def choose(self, serials: Ints) -> int:
        """Choose, and say that no state has a frame in common with its successor."""
        super().choose(serials)
        return 0


class StableBaselines:
    """`ReplayBuffer` of Stable-Baselines3."""

    def __init__(self, pictures: np.ndarray, count: int, *, small: bool = False) -> None:
        self._buffer = baselines_buffer(count, small=small)
        reward, flags = np.ones(1, np.float32), (np.zeros(1, bool), np.ones(1, bool))
        for tick in range(count):
            now, following = _stack(pictures, tick)[None], _stack(pictures, tick + 1)[None]
            done = flags[tick % EPISODE == EPISODE - 1]
            self._buffer.add(now, following, np.array([tick % 3]), reward, done, [{}])

    def draw(self, size: int) -> object:
        """A batch of tensors."""
        return self._buffer.sample(size)


class Cpprb:
    """`ReplayBuffer` and `PrioritizedReplayBuffer` of cpprb; it wants the stack last."""

    def __init__(
        self, pictures: np.ndarray, count: int, *, small: bool = False, prioritized: bool = False
    ) -> None:
        self._buffer = cpprb_buffer(count, small=small, prioritized=prioritized)
        self._rng = np.random.default_rng(1)
        for tick in range(count):
            now, following = (_stack(pictures, at).transpose(1, 2, 0) for at in (tick, tick + 1))
            done = tick % EPISODE == EPISODE - 1
            self._buffer.add(obs=now, act=tick % 3, rew=1.0, next_obs=following, done=done)
            if done:
                self._buffer.on_episode_end()

    def draw(self, size: int) -> object:
        """A batch of tensors."""
        return _tensors(self._buffer.sample(size))

    def draw_and_update(self, size: int) -> None:
        """A prioritized batch, and new errors for it."""
        batch = self._buffer.sample(size, beta=BETA)
        _tensors(batch)
        self._buffer.update_priorities(batch["indexes"], self._rng.random(size) + 1e-6)


def baselines_buffer(count: int, *, small: bool) -> Any:
    """A `ReplayBuffer` of Stable-Baselines3, in the smaller of its layouts or in the usual one."""
    buffers, specs = peer("stable_baselines3.common.buffers", "stable-baselines3"), blueprint()
    return buffers.ReplayBuffer(
        count, specs.observation_space, specs.action_space, optimize_memory_usage=small,
        handle_timeout_termination=False,
    )


def cpprb_buffer(count: int, *, small: bool, prioritized: bool = False) -> Any:
    """A buffer of cpprb, in the smaller of its layouts or in the usual one."""
    cpprb = peer("cpprb", "cpprb")
    fields = {
        "obs": {"shape": (*STACK[1:], STACK[0]), "dtype": np.uint8},
        "act": {"dtype": np.int32}, "rew": {}, "done": {},
    }
    if not small:
        fields["next_obs"] = fields["obs"]
    options: dict[str, Any] = {"next_of": "obs", "stack_compress": "obs"} if small else {}
    if prioritized:
        return cpprb.PrioritizedReplayBuffer(count, fields, alpha=ALPHA, **options)
    return cpprb.ReplayBuffer(count, fields, **options)


class TorchRL:
    """`TensorDictReplayBuffer` of TorchRL, in memory, with both stacks of each transition."""

    def __init__(self, pictures: np.ndarray, count: int) -> None:
        data, tensordict = peer("torchrl.data", "torchrl"), peer("tensordict", "tensordict")
        storage = data.LazyTensorStorage(count)
        self._buffer = data.TensorDictReplayBuffer(storage=storage, batch_size=1)
        for first in range(0, count, EPISODE):
            ticks = range(first, min(first + EPISODE, count))
            self._buffer.extend(tensordict.TensorDict({
                "observation": _stacks(pictures, ticks),
                "action": torch.tensor([tick % 3 for tick in ticks]),
                "next": {
                    "observation": _stacks(pictures, range(ticks.start + 1, ticks.stop + 1)),
                    "reward": torch.ones(len(ticks)),
                    "done": torch.tensor([tick % EPISODE == EPISODE - 1 for tick in ticks]),
                },
            }, [len(ticks)]))

    def draw(self, size: int) -> object:
        """A batch of tensors."""
        return self._buffer.sample(size)


def _stacks(pictures: np.ndarray, ticks: range) -> torch.Tensor:
    return torch.from_numpy(np.stack([_stack(pictures, tick) for tick in ticks]))


def _tensors(batch: dict[str, np.ndarray]) -> dict[str, torch.Tensor]:
    """Without a copy; the stack comes first, as a network wants it."""
    found = {name: torch.from_numpy(values) for name, values in batch.items()}
    for name in ("obs", "next_obs"):
        found[name] = found[name].permute(0, 3, 1, 2)
    return found


def peer(module: str, package: str) -> Any:
    """Import a module of another package.

    Raises:
        UserError: the package is not installed.
    """
    try:
        return importlib.import_module(module)
    except ImportError:
        raise UserError(f"{package} is not installed: pip install {package}") from None


def _stack(pictures: np.ndarray, tick: int) -> np.ndarray:
    return pictures[np.arange(tick, tick + STACK[0]) % PICTURES]


def pictures() -> np.ndarray:
    """(PICTURES, 84, 84) uint8 noise."""
    return np.random.default_rng(0).integers(0, 256, (PICTURES, *STACK[1:]), np.uint8)
