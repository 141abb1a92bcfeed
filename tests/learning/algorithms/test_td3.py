"""TD3: its noise, and the turns of its actor."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch

from rtagent.learning import state as states
from rtagent.learning.algorithms.registry import algorithm_for
from rtagent.learning.algorithms.td3 import TD3
from rtagent.learning.optimizer import HostOptimizer
from rtagent.learning.shared_update import SharedUpdate
from rtagent.memory.learner_state import Progress

from .actor_critics import batch, generator, gradient, in_turn, learning, network, pair


def test_without_its_turn_the_actor_has_no_gradient() -> None:
    made, data = pair("td3"), batch(1)
    made.compute_gradient(data, acting=True)
    with_actor = gradient(made.network.critics)
    made.compute_gradient(data, acting=False)
    assert all(p.grad is None for p in made.network.actor.parameters())
    torch.testing.assert_close(gradient(made.network.critics), with_actor)


@pytest.mark.parametrize("whole", [False, True])
def test_a_whole_gradient_has_the_actor_s_part_out_of_turn(whole: bool) -> None:
    """The memory of an update is measured by it."""
    (update,) = in_turn(1, "td3")
    update.refresh()
    assert update.compute(batch(), 0, whole=whole).acting is whole
    assert bool(update.gradient[update._acting].any()) is whole


def test_target_actions_are_smoothed_by_the_generator_s_noise() -> None:
    found = []
    for seed in (1, 1, 2):
        made = TD3(network("td3"), learning("td3", target_noise=0.2), generator(seed))
        found.append(made.compute_gradient(batch(terminal=0.0))[0])
    assert found[0] == found[1] != found[2]


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The number of steps behind the actor's moments, as Adam was told it at each of its steps."""
    told: list[int] = []
    step = HostOptimizer.step

    def note(self: HostOptimizer, steps: Sequence[int | None], *given: Any) -> None:
        if steps[0] is not None:
            told.append(steps[0])
        step(self, steps, *given)

    monkeypatch.setattr(HostOptimizer, "step", note)
    return told


@pytest.mark.parametrize("count", [1, 2, 3, 5, 8])
def test_late_gradients_keep_the_actor_s_share_and_adam_counts_its_steps(
    count: int, counted: list[int]
) -> None:
    """Each learner reads before the others have applied theirs, as in a live round."""
    updates = in_turn(count, "td3")
    waiting = [(update.refresh(), update.compute(batch(), 0))[1] for update in updates]
    for step in range(40):
        update = updates[step % count]
        update.apply(waiting[step % count])
        progress = update.refresh()
        waiting[step % count] = update.compute(batch(step), progress.updates)
    progress = updates[0].state.progress
    assert progress.steps == 40
    # One step of the actor for two of the critics, give or take what is under way.
    assert 40 - 2 * count <= progress.actor_steps <= 40
    assert len(counted) >= 8
    assert counted == list(range(len(counted)))


def with_another_delay(update: SharedUpdate) -> SharedUpdate:
    """An update of the same state by other settings."""
    config = learning("td3", policy_delay=4)
    made = algorithm_for(network("td3"), config)
    return SharedUpdate(made, update.state, update.weights, config)


def test_with_another_delay_adam_counts_on(counted: list[int]) -> None:
    (update,) = in_turn(1, "td3", policy_delay=1)
    for step in range(3):
        update.step(batch(step))
    later = with_another_delay(update)
    for step in range(8):
        later.step(batch(step))
    assert counted == list(range(len(counted)))
    assert len(counted) > 4


def test_another_delay_after_a_restart_neither_stops_nor_floods_the_actor() -> None:
    (update,) = in_turn(1, "td3", policy_delay=1)
    for step in range(12):
        update.step(batch(step))
    later = with_another_delay(update)
    shares = [later.step(batch(step)).acting for step in range(13)]
    assert 3 <= sum(shares) <= 5


def test_of_the_updates_that_the_actor_is_late_with_one_is_made_up_for() -> None:
    (update,) = in_turn(1, "td3")
    states.put(replace(states.take(update.state), progress=Progress(20, 20)), update.state)
    shares = [update.step(batch(step)).acting for step in range(7)]
    assert shares == [True, True, True, False, True, False, True]
