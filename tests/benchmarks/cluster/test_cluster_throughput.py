"""What `cluster_throughput` makes of its blocks; the sides themselves need a cluster."""

from __future__ import annotations

import subprocess
import sys

import pytest

from benchmarks.cluster.cluster_throughput import (
    ALONE,
    CLUSTER,
    LOCAL,
    PLAIN,
    Rounds,
    claims,
    ratio,
    report,
)
from benchmarks.cluster.plain_actors import PlainReplay, joined, without_update
from benchmarks.cluster.throughput_sides import Block
from benchmarks.worlds.pattern_world import PatternWorld
from benchmarks.worlds.shapes import blueprint
from rtagent.cluster.trainer import Trainer
from rtagent.config_sources import load_config
from tests.cluster.edge import Edge
from tests.cluster.scene import Scene

NEAR = CLUSTER.format(0)
PRIORITIES = """
import os
from benchmarks.cluster.throughput_sides import cluster

def own():
    return os.getpriority(os.PRIO_PROCESS, 0)

with cluster():
    import ray
    print(own(), ray.get(ray.remote(own).options(num_cpus=0).remote()))
"""


def rounds(**rates: list[float]) -> Rounds:
    names = {"alone": ALONE, "local": LOCAL, "near": NEAR, "plain": PLAIN.format("uint8")}
    return {names[key]: [Block(rate, 0.01) for rate in each] for key, each in rates.items()}


def test_a_ratio_is_that_of_blocks_side_by_side() -> None:
    # The machine was busy in the second round: both sides were slow.
    found = rounds(local=[10.0, 1.0, 10.0], near=[9.0, 0.95, 9.5])
    assert ratio(found, NEAR, LOCAL) == pytest.approx(0.95)
    assert ratio(found, NEAR, ALONE) is None


def test_what_was_not_measured_is_not_claimed() -> None:
    found = report({32: rounds(alone=[20.0], local=[10.0], near=[9.5], plain=[4.0])})
    said = {(claim["side"], claim["beside"]): claim["holds"] for claim in found["claims"]}
    assert said == {(NEAR, LOCAL): True, (NEAR, PLAIN.format("uint8")): False}
    near = next(line for line in found["rates"] if line["side"] == NEAR)
    assert near["samples_per_s"] == pytest.approx(9.5 * 32)
    assert near["busy"] == pytest.approx(0.095)
    assert near["of_update_alone"] == pytest.approx(0.475)


def test_what_a_plain_learner_does_beside_its_updates_is_the_most_that_can_be_gained() -> None:
    found = report({32: rounds(local=[20.0, 20.0], near=[60.0, 60.0], plain=[40.0, 50.0])})
    most = {claim["beside"]: claim["most_possible"] for claim in found["claims"]}
    # Updates of 10 ms.
    between = (1 / 0.4 + 1 / 0.5) / 2
    assert most == {LOCAL: None, PLAIN.format("uint8"): pytest.approx(between)}


def test_a_learner_whose_update_takes_no_time_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    # It ended at its first share, for there was no gradient to tell of.
    monkeypatch.setattr(Trainer, "learn", without_update)
    scene = Scene(Edge())
    scene.run(1.0)
    assert len(scene.updates) > 50


def test_every_claim_is_of_two_sides() -> None:
    assert all(claim.side != claim.beside for claim in claims())
    assert len(set(claims())) == len(claims()) == 7


def test_a_world_goes_on_as_time_does() -> None:
    config = load_config(overrides=["replay.capacity=256", "learning.learning_starts=9"])
    pattern = PatternWorld(config, blueprint(), 256)
    try:
        assert pattern.world.frames.newest == 255
        for seconds in (0.0, 0.5, 0.5, 2.0):
            pattern.play_until(pattern.began_at + seconds, 60.0)
            assert pattern.world.frames.newest == 255 + round(60 * seconds)
    finally:
        pattern.close()


@pytest.mark.process
def test_actors_have_the_priority_of_the_other_sides() -> None:
    # In a process of its own: Ray, and who ends with it, would stay.
    found = subprocess.run(
        [sys.executable, "-c", PRIORITIES], stdout=subprocess.PIPE, text=True, check=True
    )
    own, actors = found.stdout.split()
    assert own == actors


def test_rows_become_a_batch() -> None:
    rows = PlainReplay(8, blueprint()).sample(5)
    batch = joined(rows)
    assert batch.observations.shape == (5, 4, 84, 84)
    assert batch.actions.tolist() == [row.action for row in rows]
