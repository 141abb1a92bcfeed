"""A driver takes over weights between inferences, in the time it would wait."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from rtagent.clock import NANO
from rtagent.inference.driver import HURRY
from rtagent.staggering.instructions import Deposit, Infer, Inferred, WaitFrame, WaitUntil
from tests.inference.driver_bench import START_S, TAU_S, Bench


def test_weights_are_switched_between_inferences_only(bench: Bench) -> None:
    bench.show(0)
    versions = iter(range(1, 10))
    bench.policy.during = lambda: bench.publish(next(versions), best=2)
    bench.follow(Infer(0), Deposit(1, 0), Infer(0), Deposit(2, 0))
    # Weights that were published during an inference act from the next one on.
    (first,), (second,) = bench.slots.at(1), bench.slots.at(2)
    assert (first.version, first.action) == (0, 1)
    assert (second.version, second.action) == (1, 2)


IDLE_S = 0.05
PIECES, PIECE_S = 20, 1e-3


def latencies_s(bench: Bench, publishing: bool, idle_s: float = IDLE_S) -> list[float]:
    """Latencies of 50 inferences with large weights, each with a publication if wanted."""
    bench.show(0)
    bench.policy.pieces, bench.policy.piece_s = PIECES, PIECE_S
    versions = itertools.count(1)
    if publishing:
        bench.policy.during = lambda: bench.publish(next(versions), best=2)
    wait = [WaitUntil(START_S + k * (TAU_S + idle_s)) for k in range(1, 51)]
    script = [each for due in wait for each in (Infer(0), Deposit(1, 0), due)]
    taus = [reply.tau for reply in bench.follow(*script) if isinstance(reply, Inferred)]
    samples = bench.record.registrations_since(0)["latency_ns"] / NANO
    np.testing.assert_allclose(samples, taus, atol=1e-4)
    return taus


@pytest.mark.parametrize("idle_s", [IDLE_S, 1.2 * HURRY * TAU_S])
def test_publications_do_not_lengthen_inferences_where_there_is_idle_time(
    idle_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where idle time is too short for all pieces, but longer than `HURRY` asks for."""
    p99 = [
        np.percentile(latencies_s(Bench(monkeypatch), publishing, idle_s), 99)
        for publishing in (False, True)
    ]
    assert p99[1] == pytest.approx(p99[0], abs=1e-4)


def test_weights_prepared_in_a_wait_act_from_the_next_inference_on(bench: Bench) -> None:
    latencies_s(bench, publishing=True)
    assert bench.weights.version == 49
    assert bench.record.takeover_ns < 1e-3 * bench.record.inferences * TAU_S * NANO


def test_without_idle_time_latency_covers_what_new_weights_take(bench: Bench) -> None:
    taus = np.array(latencies_s(bench, publishing=True, idle_s=-TAU_S))
    # Before the first inference, no inference time is known, and nothing has been published.
    assert taus[0] == pytest.approx(TAU_S, abs=1e-4)
    extra = taus[1:] - TAU_S
    assert PIECE_S < extra.max() <= HURRY * taus.max() + 2 * PIECE_S
    # New weights act after every second inference or so, although there is no idle time.
    assert bench.weights.version >= 49 - 4
    assert bench.policy.weights[2] == 1.0 + bench.weights.version
    # The time that this takes is counted, too.
    assert bench.record.takeover_ns == pytest.approx(extra.sum() * NANO, rel=0.01)


def test_waiting_for_frames_is_idle_time(bench: Bench) -> None:
    """The driver knows from the environment's clock when the next frame comes."""
    tick_s = bench.blueprint.tick_seconds
    bench.policy.pieces, bench.policy.piece_s = 10, 1e-3
    bench.show(0)
    bench.metrics.environment.anchor_ns = round(START_S * NANO)
    bench.bell.during = lambda: bench.show(bench.frames.newest + 1)
    beat = bench.beat

    def publish_first() -> None:
        if bench.beats == 1:
            bench.publish(1, best=2)
        beat()

    bench.beat = publish_first
    first, second, answer = bench.follow(WaitFrame(1), WaitFrame(3), Infer(None))
    assert second.now - first.now < 3.1 * tick_s
    assert (bench.weights.version, answer.tau) == (1, pytest.approx(TAU_S, rel=1e-3))
