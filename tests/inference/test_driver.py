"""The driver of an inference process, on a virtual clock and memory of its own."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import replace
from typing import Any

import gymnasium
import numpy as np
import pytest

from rtagent.clock import NANO
from rtagent.config_sources import parse_config
from rtagent.inference.driver import Driver
from rtagent.inference.frame_wait import SLICE_S
from rtagent.memory import ordering
from rtagent.staggering.arbiter import Arbiter, Deposited, Source
from rtagent.staggering.instructions import (
    Deposit,
    Infer,
    Inferred,
    Now,
    WaitFrame,
    WaitUntil,
)
from rtagent.staggering.merging import MERGES
from tests.desired import with_changes
from tests.inference.driver_bench import CAPACITY, INDEX, START_S, TAU_S, Bench
from tests.rows import write_row


def test_inference_reads_the_frame_asked_for(bench: Bench) -> None:
    bench.show(*range(9))
    (reply,) = bench.follow(Infer(6))
    assert isinstance(reply, Inferred)
    assert (reply.frame, reply.chosen) == (6, 8)
    assert reply.tau == pytest.approx(TAU_S, rel=0.01)
    assert reply.now == pytest.approx(START_S + TAU_S, abs=1e-3)
    assert bench.policy.seen == [[3, 4, 5, 6]]


def test_a_tick_whose_frame_is_still_made_counts_as_chosen(bench: Bench) -> None:
    bench.show(*range(9))
    environment = bench.metrics.environment
    environment.chosen, environment.behind_ns = 9, round(0.004 * NANO)
    (reply,) = bench.follow(Infer(8))
    assert (reply.chosen, reply.behind) == (9, 0.004)


@pytest.mark.parametrize("asked", [None, 1, 1000])
def test_frame_that_is_not_there_gives_way_to_the_newest(bench: Bench, asked: int | None) -> None:
    bench.show(*range(CAPACITY + 10))
    (reply,) = bench.follow(Infer(asked))
    assert reply.frame == CAPACITY + 9


@pytest.mark.parametrize("asked", [None, 0])
def test_first_frame_is_waited_for(bench: Bench, asked: int | None) -> None:
    bench.bell.during = lambda: bench.show(0)
    (reply,) = bench.follow(Infer(asked))
    assert reply.frame == 0
    assert bench.policy.seen == [[0, 0, 0, 0]]
    # The time before the frame does not count as inference time.
    assert reply.tau == pytest.approx(TAU_S, rel=0.01)


@pytest.mark.parametrize(
    ("slip_s", "slips", "ran_s", "counted"),
    [
        # The world has noticed the pause; it has not woken up yet; it has gone on all the time;
        # its steps take six times as long as its ticks.
        (60.0, 1, 0.0, False), (0.0, 0, 0.0, False), (0.5, 1, 59.5, True), (50.0, 300, 10.0, True),
    ],
)
def test_a_pause_of_the_daemon_is_no_inference_time(
    bench: Bench, slip_s: float, slips: int, ran_s: float, counted: bool
) -> None:
    """Nor is anything else that holds up world and policy alike."""
    bench.show(*range(9))
    world, slip_ns = bench.metrics.environment, round(slip_s * NANO)
    world.anchor_ns = round(bench.clock.now() * NANO)
    world.anchor_tick = 9
    values, answered = bench.policy.values, []

    def answer(observation: Any) -> Any:
        answered.append(observation)
        if len(answered) == 2:
            bench.clock.advance(60.0)
            world.slips = slips
            world.slipped_ns, world.anchor_ns = slip_ns, world.anchor_ns + slip_ns
            bench.frames._publish(8 + round(ran_s * bench.blueprint.rate_hz))
        return values(observation)

    bench.policy.values = answer  # type: ignore[method-assign]
    replies = bench.follow(Infer(6), Deposit(9, 6), Infer(7), Deposit(10, 7), Infer(8))
    taus = [reply.tau for reply in replies if isinstance(reply, Inferred)]
    assert taus == pytest.approx([TAU_S, TAU_S + 60.0 * counted, TAU_S], rel=0.01)


@pytest.mark.parametrize(
    ("rate_hz", "step_s", "took_s", "ran"),
    # Its steps take more than a second of a tick of two; it catches up with ticks of 0.25 s.
    [(0.5, 1.5, 3.3, 1), (4.0, 0.375, 4.2, 11)],
)
def test_a_slow_world_does_not_stand_still(
    monkeypatch: pytest.MonkeyPatch, rate_hz: float, step_s: float, took_s: float, ran: int
) -> None:
    bench = Bench(monkeypatch, rate_hz=rate_hz)
    bench.show(*range(9))
    world = bench.metrics.environment
    world.anchor_ns, world.anchor_tick = round(bench.clock.now() * NANO), 9

    def go_on() -> None:
        if len(bench.policy.seen) == 2:
            bench.clock.advance(took_s)
            world.add_step(8 + ran, round(step_s * NANO))
            bench.frames._publish(8 + ran)

    bench.policy.during = go_on
    replies = bench.follow(Infer(6), Deposit(9, 6), Infer(7))
    taus = [reply.tau for reply in replies if isinstance(reply, Inferred)]
    assert taus == pytest.approx([TAU_S, TAU_S + took_s], rel=0.01)


def test_action_is_deposited(bench: Bench) -> None:
    bench.show(0, 1, 2)
    bench.publish(7, best=2)
    bench.weights.take_over()
    replies = bench.follow(Infer(2), Deposit(9, 2))
    (found,) = bench.slots.at(9)
    assert found == Deposited(INDEX, 2, 9, 2, 7, found.registered_at)
    assert found.registered_at == pytest.approx(replies[1].now, abs=1e-3)
    assert bench.record.inferences == 1
    assert bench.record.weights_version == 7
    (sample,) = bench.record.registrations_since(0)
    assert sample["tick"] == 9
    assert sample["registered_ns"] / NANO == pytest.approx(found.registered_at, abs=1e-6)
    assert sample["latency_ns"] / NANO == pytest.approx(TAU_S, rel=0.01)


def test_an_inference_is_counted_after_it_is_listed_on_every_processor(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who reads the count first and then the list finds each inference that is counted."""
    record, fences = bench.record, []
    monkeypatch.setattr(
        ordering, "fence",
        lambda: fences.append((record.registrations.count, record.inferences)),
    )
    bench.show(0)
    bench.follow(Infer(0), Deposit(1, 0))
    assert (1, 0) in fences


@pytest.mark.parametrize("instruction", [Now(), WaitUntil(START_S + 1e6), WaitFrame(9)])
@pytest.mark.parametrize("processes", [INDEX, 1])
def test_leaves_when_it_is_one_too_many(bench: Bench, instruction: Any, processes: int) -> None:
    bench.show(0)
    bench.desired = replace(bench.desired, processes=processes)
    assert bench.follow(instruction) == []
    assert bench.policy.seen == []
    assert list(bench.slots.at(1)) == []


def test_an_action_under_way_is_registered_before_leaving(bench: Bench) -> None:
    bench.show(0)
    bench.desired = replace(bench.desired, processes=INDEX)
    assert len(bench.follow(Infer(0), Deposit(1, 0), Now())) == 1
    assert [each.frame for each in bench.slots.at(1)] == [0]


def test_stays_while_it_is_wanted(bench: Bench) -> None:
    bench.desired = replace(bench.desired, processes=INDEX + 1)
    assert len(bench.follow(Now(), Now())) == 2


def test_leaves_in_the_middle_of_a_long_wait(bench: Bench) -> None:
    beat = bench.beat

    def last_beat() -> None:
        beat()
        bench.stopping = bench.beats == 5

    bench.beat = last_beat
    assert bench.follow(WaitUntil(START_S + 1e6)) == []
    assert bench.clock.now() < START_S + 6 * SLICE_S


def test_leaves_while_there_is_no_frame(bench: Bench) -> None:
    def stop() -> None:
        bench.stopping = True

    bench.bell.during = stop
    assert bench.follow(Infer(None)) == []


@pytest.mark.parametrize("wrong", [np.nan, np.inf, -np.inf])
def test_network_that_answers_no_number(bench: Bench, wrong: float) -> None:
    bench.show(*range(5))
    bench.policy.answers = np.array([0.0, wrong, 1.0], np.float32)
    with pytest.raises(FloatingPointError, match="to frame 4"):
        bench.follow(Infer(None), Deposit(5, 4))
    assert list(bench.slots.at(5)) == []


@pytest.mark.parametrize(("injected_ms", "tau_s"), [(600.0, 0.6), (100.0, TAU_S)])
def test_injected_latency_includes_the_forward_pass(
    bench: Bench, injected_ms: float, tau_s: float
) -> None:
    bench.show(0)
    bench.desired = with_changes(bench.desired, inference={"injected_latency_ms": injected_ms})
    (reply,) = bench.follow(Infer(0))
    assert reply.tau == pytest.approx(tau_s, rel=0.01)


def test_an_inference_with_injected_latency_is_ended_before_the_process_leaves(
    bench: Bench,
) -> None:
    """As one whose policy really takes so long is: neither is in vain."""
    bench.show(0)
    bench.desired = with_changes(bench.desired, inference={"injected_latency_ms": 900.0})
    bench.policy.during = lambda: setattr(
        bench, "desired", with_changes(bench.desired, processes=INDEX)
    )
    (reply,) = bench.follow(Infer(0), Deposit(3, 0))
    assert reply.tau == pytest.approx(0.9, rel=0.01)
    assert [each.frame for each in bench.slots.at(3)] == [0]


def test_injected_latency_is_not_waited_for_when_the_run_ends(bench: Bench) -> None:
    bench.show(0)
    bench.desired = with_changes(bench.desired, inference={"injected_latency_ms": 60_000.0})
    bench.policy.during = lambda: setattr(bench, "stopping", True)
    assert bench.follow(Infer(0), Deposit(3, 0)) == []
    assert bench.clock.now() < START_S + 1.0


def test_algorithm_in_force_is_started_anew(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    started = []

    def first(index: int, state: Any, lock: Any, tick_s: float) -> Generator[Any, Any, None]:
        started.append(("first", index, tick_s))
        yield Now()
        state.algorithm = "second"

    def second(index: int, state: Any, lock: Any, tick_s: float) -> Generator[Any, Any, None]:
        started.append(("second", index, tick_s))
        bench.stopping = True
        yield Now()

    monkeypatch.setattr("rtagent.inference.driver.ALGORITHMS", {"first": first, "second": second})
    bench.world.stagger.algorithm = "first"
    Driver(bench, bench.policy, bench.weights).run()  # type: ignore[arg-type]
    tick_s = bench.blueprint.tick_seconds
    assert started == [("first", INDEX, tick_s), ("second", INDEX, tick_s)]


def test_what_is_pending_is_asked_for_after_the_injected_latency(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """So it includes what was executed and promised meanwhile; the slot keeps it, too."""
    bench = Bench(monkeypatch, pending_actions=4)
    bench.desired = with_changes(bench.desired, inference={"injected_latency_ms": 500.0})
    bench.show(0, 1)
    beside = {"version": 1, "registered_at": 1.0}
    bench.slots.deposit(Deposited(0, 0, 3, 2, **beside))
    began = bench.clock.now()
    prepare = Driver._prepare

    def during_the_wait(driver: Driver, until: float) -> None:
        prepare(driver, until)
        assert bench.clock.now() - began >= TAU_S
        if bench.ledger.newest < 2:
            for tick in range(bench.ledger.newest + 1, 3):
                write_row(
                    bench.ledger, tick, observed=-1, worker=-1, source=Source.DEFAULT,
                    action=tick % 2,
                )
            bench.slots.deposit(Deposited(1, 0, 4, 1, **beside))

    monkeypatch.setattr(Driver, "_prepare", during_the_wait)
    reply, _ = bench.follow(Infer(1), Deposit(tick=5, frame=1))
    assert reply.tau == pytest.approx(0.5, abs=0.01)
    (item,) = bench.slots.at(5)
    assert item.pending.tolist() == [0, 2, 1, -1]
    assert bench.policy.told.tolist() == [[1, 0, 0, 0, 0, 1, 0, 1, 0, 0, 0, 0]]  # type: ignore[attr-defined]


@pytest.mark.parametrize("chunk", ["newest", "ensemble"])
def test_what_several_promise_for_a_tick_is_pending_as_it_would_be_executed(
    chunk: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    box = gymnasium.spaces.Box(-1.0, 1.0, (1,), np.float32)
    shapes = {"action_space": box, "action_shape": (1,), "action_dtype": "float32"}
    bench = Bench(monkeypatch, pending_actions=1, **shapes)
    bench.config = parse_config({
        "policy": {"chunk": chunk, "epsilon_start": 0.0, "epsilon_end": 0.0},
        "learning": {"processes": 0}, "env": {"pending_actions": 1},
    })

    def answer(observation: np.ndarray, pending: Any) -> np.ndarray:
        pending()
        return np.zeros(1, np.float32)

    bench.policy.values = answer  # type: ignore[assignment]
    bench.show(0, 1)
    for worker, frame, action in ((0, 0, -0.5), (1, 1, 1.0)):
        bench.slots.deposit(Deposited(worker, frame, 2, np.float32([action]), 1, 1.0))
    bench.follow(Infer(1), Deposit(tick=5, frame=1))
    (item,) = bench.slots.at(5)
    executed = Arbiter(merge=MERGES[chunk]).choose(2, bench.slots).deposit.action
    assert item.pending.tolist() == [executed.tolist()]


def test_after_a_cut_link_the_newest_frame_is_asked_about(bench: Bench) -> None:
    """The time before that question does not count as inference time."""
    bench.show(0, 1)
    answers, values = iter([None, None]), bench.policy.values

    def cut_twice(observation: np.ndarray) -> Any:
        answer = values(observation)
        try:
            cut = next(answers)
        except StopIteration:
            return answer
        bench.show(len(bench.policy.seen) + 1)
        return cut

    bench.policy.values = cut_twice  # type: ignore[method-assign]
    (found,) = [each for each in bench.follow(Infer(1)) if isinstance(each, Inferred)]
    assert [seen[-1] for seen in bench.policy.seen] == [1, 2, 3]
    assert found.frame == 3
    assert found.tau == pytest.approx(TAU_S, rel=0.01)


@pytest.mark.parametrize(
    ("tick", "frame", "dropped"), [(10, 6, 1), (10, 7, 1), (10, 8, 0), (11, 6, 0)]
)
def test_an_answer_is_dropped_when_its_tick_is_over_and_a_newer_frame_was_acted_on(
    bench: Bench, tick: int, frame: int, dropped: int
) -> None:
    bench.configure(remote="ws://there:1")
    for row, seen in ((8, 5), (9, 7), (10, -1)):
        source = Source.DEFAULT if seen < 0 else Source.AGENT
        write_row(bench.ledger, row, observed=seen, source=source)
    bench.show(*range(9))
    bench.follow(Infer(frame), Deposit(tick, frame))
    assert bench.record.dropped == dropped
