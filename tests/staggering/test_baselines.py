"""Sequential interaction: its instructions, their order, and their frames."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from rtagent.staggering.instructions import Deposit, Infer, Inferred, Learn, Moment, WaitFrame
from rtagent.staggering.register import ALGORITHMS
from rtagent.staggering.simulator import SimulationConfig, simulate
from tests.staggering.begun import TICK, begun, fresh


def asked_for(algorithm: str) -> list[Any]:
    """The first six instructions where an inference and an update take five ticks each."""
    run = begun(ALGORITHMS[algorithm], 0, fresh(algorithm))
    newest, asked = 50, []
    instruction: Any = run.send(Moment(newest * TICK, newest))
    for _ in range(6):
        asked.append(instruction)
        if isinstance(instruction, Infer):
            seen = newest if instruction.frame is None else instruction.frame
            newest += 5
            instruction = run.send(Inferred(seen, 5 * TICK, newest * TICK, newest))
        else:
            newest += 5 * isinstance(instruction, Learn)
            instruction = run.send(Moment(newest * TICK, newest))
    return asked


@pytest.mark.parametrize("algorithm", ["unstaggered", "sequential", "sequential-infer-learn"])
def test_a_frame_is_acted_on_once_however_late_the_next_one_is(algorithm: str) -> None:
    run = begun(ALGORITHMS[algorithm], 0, fresh(algorithm))
    instruction: Any = run.send(Moment(1.0, 50))
    if instruction == Learn():
        instruction = run.send(Moment(1.0, 50))
    assert instruction == Infer(None)
    instruction = run.send(Inferred(50, TICK, 1.0, 50))
    while instruction != WaitFrame(51):
        instruction = run.send(Moment(1.0, 50))
    assert run.send(Moment(1.1, 50)) == WaitFrame(51)
    # Frame numbers that were restarted are followed.
    assert run.send(Moment(1.2, 3)) == WaitFrame(4)


def test_first_the_action_then_the_update() -> None:
    assert asked_for("sequential-infer-learn") == [
        Infer(None), Deposit(56, 50), Learn(), Infer(None), Deposit(66, 60), Learn(),
    ]


def test_first_the_update_then_the_action_on_the_frame_seen_before() -> None:
    assert asked_for("sequential-learn-infer") == [
        Learn(), Infer(50), Deposit(61, 50), Learn(), Infer(60), Deposit(71, 60),
    ]


@pytest.mark.parametrize("algorithm", ["sequential-infer-learn", "sequential-learn-infer"])
def test_without_learning_it_is_one_process_alone(algorithm: str) -> None:
    config = SimulationConfig(algorithm=algorithm, inference_ticks=5.0, seconds=20.0)
    found = simulate(config, np.random.default_rng(0)).figures()
    assert found["inaction_fraction"] == pytest.approx(0.8, abs=0.04)
