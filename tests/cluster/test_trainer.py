"""The cluster's update on memory of one process; the processor stands in for a GPU."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import astuple, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces

from rtagent.cluster.message import MessageError
from rtagent.cluster.trainer import Trainer, snapshot_arrays, snapshot_from
from rtagent.config_sources import parse_config
from rtagent.learning import adam
from rtagent.learning import state as states
from rtagent.learning.beginning import build_network
from rtagent.learning.device import HOST, Device
from rtagent.learning.precision import LEAST_EXPONENT
from rtagent.learning.replay.batch import Batch
from rtagent.memory.learner_state import Progress
from rtagent.policy import networks
from tests.cluster.edge import Edge
from tests.conftest import make_blueprint

BEGUN, UPDATES = 7, 24


def batches(world: Edge) -> Iterator[Batch]:
    rng = np.random.default_rng(0)
    world.replay.catch_up()
    while True:
        yield copy.deepcopy(world.replay.sample(8, rng))


def begun(world: Edge, device: Device, monkeypatch: pytest.MonkeyPatch) -> Trainer:
    monkeypatch.setattr(Device, "of", lambda learning: device)
    trainer = Trainer(world.config, world.blueprint)
    flat = networks.flattened(build_network(world.config, world.blueprint))
    trainer.begin(states.begin(flat, BEGUN))
    return trainer


def told(trainer: Trainer, folder: Path, batch: Batch) -> list[Any]:
    """All that a trainer tells of what it has learned."""
    snapshot, published = trainer.snapshot(), trainer.published()
    trainer.save(folder, "one")
    arrays = snapshot.arrays
    return [
        snapshot.progress, trainer.version, *published[:2], published[2].copy(), arrays.weights,
        arrays.mean, arrays.square, snapshot.target, trainer.errors(batch),
    ]


def test_a_gpu_keeps_nothing_to_itself_that_is_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The compiled Adam rounds differently.
    monkeypatch.setattr(adam, "_ADAM", None)
    world = Edge(target_period=5).play(200)
    gpu = Device(torch.device("cpu"), nullcontext)
    here, there = (begun(world, each, monkeypatch) for each in (HOST, gpu))
    for at, batch in zip(range(UPDATES), batches(world), strict=False):
        one, other = (each.learn(batch, 1e-3) for each in (here, there))
        assert one.loss == other.loss
        assert torch.equal(one.errors, other.errors)
        assert there.progress.updates == BEGUN + at + 1
        # At each of them, others of the updates are not stored yet.
        found = [told(each, tmp_path / str(index), batch)
                 for index, each in enumerate((here, there))] if at % 7 == 2 else [[], []]
        for mine, theirs in zip(*found, strict=True):
            np.testing.assert_array_equal(mine, theirs)
    again = Trainer(world.config, world.blueprint)
    assert again.restore(tmp_path / "1", "one")
    # Written after the 24th.
    assert again.progress == there.progress


def test_the_step_size_is_the_one_that_the_nodes_say(monkeypatch: pytest.MonkeyPatch) -> None:
    worlds = [Edge(), Edge(learning_rate_steps=3, learning_rate_end_factor=0.1)]
    found = []
    for world in worlds:
        world.play(200)
        trainer = begun(world, HOST, monkeypatch)
        for batch, rate in zip(batches(world), (1e-3, 5e-4, 1e-4), strict=False):
            trainer.learn(batch, rate)
        found.append(trainer.snapshot().arrays.weights.copy())
    np.testing.assert_array_equal(*found)


def test_a_learner_that_goes_on_does_not_draw_its_noise_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Device, "of", lambda learning: HOST)
    config = parse_config({"learning": {"precision": "float32"}})
    shapes = make_blueprint(
        frame_shape=(3,), frame_dtype="float32", frame_stack=1,
        observation_space=spaces.Box(-10, 10, (1, 3), np.float32),
        action_space=spaces.Box(-1, 1, (2,), np.float32), action_shape=(2,),
        action_dtype="float32", action_meanings=(), screen=False,
    )
    network = build_network(config, shapes)
    shapes = replace(shapes, tensors=networks.tensor_specs(network))
    seeds = []
    for updates in (0, 8, 0):
        trainer = Trainer(config, shapes)
        trainer.begin(states.begin(networks.flattened(network), updates))
        seeds.append(trainer._update.algorithm.generator.initial_seed())
    assert seeds[0] == seeds[2] != seeds[1]


@pytest.mark.parametrize("change", [
    {"weights": np.array([1.0, np.nan])}, {"square": np.array([0.0, -1.0])},
    {"target": np.zeros(1)}, {"progress": np.array(astuple(Progress(steps=-1)))},
    {"progress": np.array(astuple(Progress(steps=2, actor_skipped=3)))},
    {"progress": np.array(astuple(Progress(scale_exponent=99)))},
])
def test_a_state_that_nothing_can_be_learned_on_is_refused(change: dict[str, Any]) -> None:
    begin = snapshot_arrays(states.begin(np.array([np.inf, 1.0], np.float32), BEGUN))
    assert snapshot_from(begin, 2).progress.updates == BEGUN
    # Of float16 after many overflows.
    lowest = np.array(astuple(Progress(9, 9, 72, scale_exponent=LEAST_EXPONENT)))
    assert snapshot_from({**begin, "progress": lowest}, 2).progress.scale_exponent == LEAST_EXPONENT
    with pytest.raises(MessageError, match="no state"):
        snapshot_from({**begin, **change}, 2)
