"""Fixtures of the tests of learning: shapes, shared memory, and a learner's run."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

from rtagent.config import Config
from rtagent.config_sources import parse_config
from rtagent.learning import learner
from rtagent.learning.beginning import build_network
from rtagent.memory.alternation import Alternation
from rtagent.memory.arena import Arena, private_memory
from rtagent.memory.blueprint import Blueprint
from rtagent.memory.double_buffer import JsonDoubleBuffer
from rtagent.memory.horizon import HorizonRecord
from rtagent.memory.learner_state import LearnerState
from rtagent.memory.process_metrics import ProcessMetrics
from rtagent.memory.robust_lock import RobustLock
from rtagent.memory.turns import Turns
from rtagent.memory.weights import WeightBuffers
from rtagent.policy import networks
from rtagent.policy.actor_critic import acting_part
from tests.conftest import make_blueprint, private
from tests.learning.learner_run import BOX, CAPACITY, SETTINGS, Run, Start
from tests.rows import private_rings


def _make_blueprint(
    frame_shape: tuple[int, ...] = (3,), dtype: str = "float32", stack: int = 1
) -> Blueprint:
    low, high = (0, 255) if dtype == "uint8" else (-10, 10)
    space = spaces.Box(low, high, (stack, *frame_shape), np.dtype(dtype).type)
    return make_blueprint(
        frame_shape=frame_shape, frame_dtype=dtype, frame_stack=stack, observation_space=space,
        action_space=spaces.Discrete(4), action_meanings=(), network="mlp k=1", tensors=(),
        screen=False,
    )


@pytest.fixture(scope="session", name="make_blueprint")
def _shapes() -> Callable[..., Blueprint]:
    """Shapes of a small run."""
    return _make_blueprint


@pytest.fixture
def make_world(make_blueprint: Any) -> Iterator[Callable[..., SimpleNamespace]]:
    """A world in this process's memory; keyword arguments are learning settings."""
    arenas: list[Arena] = []

    def make(*, continuous: bool = False, **learning: Any) -> SimpleNamespace:
        settings = {**SETTINGS, "learning": {**SETTINGS["learning"], **learning}}
        config: Config = parse_config(settings)
        shapes: Blueprint = make_blueprint()
        if continuous:
            shapes = replace(
                shapes, action_space=BOX, action_shape=BOX.shape, action_dtype="float32"
            )
        network = build_network(config, shapes)
        tensors, acting = (networks.tensor_specs(each) for each in (network, acting_part(network)))
        shapes = replace(shapes, tensors=tensors[: len(acting)], critics=tensors[len(acting) :])
        frames, ledger = private_rings(shapes, CAPACITY)
        parameters, learned = shapes.parameters, shapes.learned_parameters
        arenas.append(Arena("apply", 1))
        return SimpleNamespace(
            config=config, blueprint=shapes, frames=frames, ledger=ledger,
            weights=private(WeightBuffers, parameters), learner=private(LearnerState, learned),
            horizon=private(HorizonRecord),
            turns=Turns(private_memory(Turns.size()), RobustLock(arenas[-1].handle)),
            metrics=private(ProcessMetrics), priorities=None, alternation=private(Alternation),
            status=private(JsonDoubleBuffer, 4096),
        )

    yield make
    for arena in arenas:
        arena.close()


@pytest.fixture
def start(make_world: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Start:
    """A run after some ticks of play; keyword arguments are learning settings."""
    monkeypatch.setattr(learner, "keep_freed_memory", lambda: None)

    def begin(
        ticks: int = 200, folder: str = "", resume: Path | None = None, world: Any = None,
        **settings: Any,
    ) -> Run:
        run = Run(world or make_world(**settings), tmp_path / folder, resume)
        run.play(ticks)
        return run

    return begin
