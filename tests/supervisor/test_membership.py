"""The members of the staggering, as processes start, die and are restarted."""

from __future__ import annotations

from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any

import pytest

from rtagent.memory.control import DesiredState
from rtagent.staggering.state import StaggerState
from rtagent.supervisor.child import Child, State
from rtagent.supervisor.membership import update_members
from tests.desired import make_desired, with_changes
from tests.r3.coordinated import FakeLock

DESIRED = make_desired(processes=3, rows=3, inference={"algorithm": "maximum-time"}, go=True)


@dataclass
class Scene:
    """A world of which only staggering is there, and its inference processes."""

    world: Any
    children: list[Child]

    def follow(self, desired: DesiredState = DESIRED) -> tuple[int, ...]:
        update_members(self.world, self.children, desired, 10.0)
        assert not self.world.claim_lock.held
        ring: tuple[int, ...] = self.world.stagger.membership.ring
        return ring


@pytest.fixture
def scene() -> Scene:
    state = StaggerState(bytearray(StaggerState.nbytes()))
    state.reset("maximum-time", 0.0, 3)
    children = [Child("inference", index, lambda pipe: None) for index in range(3)]
    for child in children:
        child.state = State.RUNNING
    return Scene(SimpleNamespace(stagger=state, claim_lock=FakeLock()), children)


def test_processes_that_act_are_members(scene: Scene) -> None:
    assert scene.follow() == (0, 1, 2)


@pytest.mark.parametrize("restarts", [0, 1])
def test_a_process_that_is_not_ready_is_no_member(scene: Scene, restarts: int) -> None:
    child = scene.children[1]
    for state in (State.BACKOFF, State.STARTING, State.FAILED, State.STOPPING, State.STOPPED):
        child.state, child.restarts = state, restarts
        assert scene.follow() == (0, 2), state
    child.state = State.RUNNING
    assert set(scene.follow()) == {0, 1, 2}


def test_new_processes_get_slots_once_they_act(scene: Scene) -> None:
    scene.children.append(Child("inference", 3, lambda pipe: None, state=State.STARTING))
    generation = scene.world.stagger.load().generation
    assert scene.follow(replace(DESIRED, processes=4)) == (0, 1, 2)
    # The slots of the processes that act stay where they are.
    assert scene.world.stagger.load().generation == generation
    scene.children[3].state = State.RUNNING
    assert scene.follow(replace(DESIRED, processes=4)) == (0, 1, 2, 3)


def test_the_members_stay_while_no_process_acts(scene: Scene) -> None:
    for child in scene.children:
        child.state = State.STARTING
    assert scene.follow() == (0, 1, 2)


def test_another_algorithm_starts_over_with_the_processes_that_act(scene: Scene) -> None:
    scene.children[0].state = State.BACKOFF
    assert set(scene.follow(with_changes(DESIRED, inference={"algorithm": "adaptive"}))) == {1, 2}
    assert scene.world.stagger.algorithm == "adaptive"


def test_a_lock_that_is_taken_is_not_waited_for(scene: Scene) -> None:
    scene.children[1].state = State.BACKOFF
    scene.world.claim_lock.taken = True
    assert scene.follow() == (0, 1, 2)
    scene.world.claim_lock.taken = False
    assert scene.follow() == (0, 2)
