"""The tick loop on a virtual clock: it never waits for an action, and its rows are true."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest

from rtagent.clock import NANO
from rtagent.env import process
from rtagent.memory.ledger import TERMINATED, TRUNCATED, checksum
from rtagent.memory.process_metrics import Doing
from rtagent.staggering.arbiter import Source
from tests.conftest import make_blueprint
from tests.env.ticking import ANCHOR_S, PERIOD_S, Memory, Run

DEFAULT, AGENT, REUSED = Source.DEFAULT, Source.AGENT, Source.REUSED


@pytest.fixture
def memory() -> Memory:
    return Memory(make_blueprint())


@pytest.fixture
def run(memory: Memory) -> Run:
    return Run(memory)


def test_ticks_are_due_for_ever_without_drift(run: Run) -> None:
    run.world.step_s = 0.013
    run.ticks(200)
    rows = run.rows()
    assert rows["tick"].tolist() == list(range(200))
    assert rows["time_ns"].tolist() == [round((ANCHOR_S + k * PERIOD_S) * NANO) for k in range(200)]
    assert (rows["lateness_ns"] == 0).all()
    assert run.memory.record.slips == 0
    assert run.memory.record.ticks == 200
    assert run.memory.record.step_lengths(rows["tick"]) == pytest.approx(0.013 * NANO, abs=2)


def test_without_actions_the_default_behaviour_runs(run: Run) -> None:
    run.ticks(3)
    assert run.world.received == [0, 0, 0]
    run.check_rows(
        source=[DEFAULT] * 3, observed=[-1] * 3, worker=[-1] * 3, weights_version=[-1] * 3,
        registered_ns=[0] * 3,
    )
    record = run.memory.record
    assert [record.agent, record.reused, record.default, record.decisions] == [0, 0, 3, 0]


def test_rows_tell_what_was_executed(run: Run) -> None:
    run.deposit(0, action=2, frame=-1)
    run.deposit(2, action=1, frame=0)
    run.deposit(4, action=2, frame=1)
    run.ticks(5)
    # Ticks 1 and 3 execute the action of the next tick, which is already there.
    assert run.world.received == [2, 1, 1, 2, 2]
    run.check_rows(
        action=run.world.received, source=[AGENT, REUSED, AGENT, REUSED, AGENT],
        observed=[-1, 0, 0, 1, 1], worker=[3] * 5, weights_version=[42] * 5,
        log_probability=[0.0, -0.5, -0.5, -1.0, -1.0],
        registered_ns=[round(t / 8 * NANO) for t in (0, 2, 2, 4, 4)],
        reward=[0.0, 0.5, 1.0, 1.5, 2.0], crc=[checksum(row) for row in run.rows()],
    )
    counts = [run.memory.record.agent, run.memory.record.reused, run.memory.record.default]
    assert counts == [3, 2, 0]
    # Three inferences, two of which were also used for the tick before.
    assert run.memory.record.decisions == 3


def test_an_action_that_only_an_earlier_tick_used_was_a_decision(run: Run) -> None:
    run.deposit(2, action=1, frame=0)
    run.ticks(1)
    assert run.rows()["source"].tolist() == [REUSED]
    assert run.memory.record.decisions == 1


def test_the_metrics_hold_the_range_of_rewards_with_nought_in_it(memory: Memory) -> None:
    run = Run(memory)
    run.ticks(1)
    record = run.memory.record
    assert (record.reward_low, record.reward_high) == (0.0, 0.0)
    run.ticks(4)
    assert run.rows()["reward"].max() == record.reward_high > 0.0
    assert record.reward_low == 0.0


def test_late_action_is_executed_once(run: Run) -> None:
    run.ticks(3)
    run.deposit(2, action=2, frame=1)
    run.ticks(2)
    run.check_rows(source=[DEFAULT] * 3 + [AGENT, DEFAULT], observed=[-1, -1, -1, 1, -1])


def test_frame_is_published_with_its_tick(run: Run) -> None:
    run.ticks(3)
    for tick in range(3):
        frame = run.memory.frames.frame(tick)
        assert frame is not None
        assert (frame == tick + 1).all()
    assert run.memory.frames.newest == run.memory.ledger.newest == 2


def test_while_a_tick_is_stepped_its_action_counts_as_chosen(run: Run) -> None:
    seen = []
    run.world.note = lambda call: seen.append(  # type: ignore[method-assign]
        (run.memory.record.chosen, run.memory.frames.newest)
    )
    run.ticks(3)
    assert seen == [(0, -1), (1, 0), (2, 1)]


def test_hold_up_is_caught_up_with_the_default_behaviour(run: Run) -> None:
    run.ticks(1)
    for tick in range(1, 5):
        run.deposit(tick)
    # Tick 1 is due after one period; three more are missed.
    run.clock.advance(4.5 * PERIOD_S)
    run.loop.run_next()
    run.check_rows(
        tick=[0, 1, 2, 3, 4], source=[DEFAULT] * 4 + [AGENT],
        lateness_ns=[round(each * PERIOD_S * NANO) for each in (0.0, 3.5, 2.5, 1.5, 0.5)],
    )
    assert run.memory.record.slips == 0
    run.ticks(1)
    # Back on the old clock.
    assert run.clock.now() == pytest.approx(ANCHOR_S + 5 * PERIOD_S)


@pytest.mark.parametrize(("missed", "slips"), [(5, 0), (6, 1)])
def test_longer_hold_up_is_a_slip(run: Run, missed: int, slips: int) -> None:
    run.ticks(1)
    run.clock.advance((1 + missed + 0.25) * PERIOD_S)
    now_s = run.clock.now()
    run.deposit(1)
    run.loop.run_next()
    rows, record = run.rows(), run.memory.record
    assert record.slips == slips
    assert len(rows) == (2 if slips else missed + 2)
    if slips:
        slipped_ns = round((missed + 0.25) * PERIOD_S * NANO)
        assert rows["source"][-1] == AGENT
        assert rows["lateness_ns"][-1] == 0
        assert rows["time_ns"][-1] == round(now_s * NANO)
        assert record.slipped_ns == slipped_ns
        assert record.anchor_ns == run.schedule.anchor_ns
        assert record.anchor_ns == round(ANCHOR_S * NANO) + slipped_ns
        run.ticks(1)
        assert run.clock.now() == pytest.approx(now_s + PERIOD_S)


def test_slips_add_up(run: Run) -> None:
    for _ in range(3):
        run.clock.advance(1.0)
        run.ticks(2)
    record = run.memory.record
    assert record.slips == 2
    assert record.slipped_ns == run.schedule.anchor_ns - round(ANCHOR_S * NANO)


def test_slow_world_is_caught_up_within_bounds(run: Run) -> None:
    """Each step takes 1.6 ticks: every call catches up, with a bounded number of ticks."""
    run.world.step_s = 1.6 * PERIOD_S
    for _ in range(40):
        before = run.loop.tick
        run.loop.run_next()
        assert 1 <= run.loop.tick - before <= 6
    assert run.memory.record.ticks == run.loop.tick


@pytest.mark.parametrize("flags", [TERMINATED, TRUNCATED])
def test_episodes(run: Run, flags: int) -> None:
    run.world.ends = {3: flags, 5: flags}
    run.ticks(8)
    run.check_rows(
        episode=[0, 0, 0, 0, 1, 1, 2, 2], flags=[0, 0, 0, flags, 0, flags, 0, 0]
    )
    # The first reset is seeded, the others go on from it.
    assert run.world.resets == [11, None, None]
    starts = run.memory.frames.episode_starts[:8].tolist()
    assert starts == [0, 0, 0, 0, 4, 4, 6, 6]
    episodes = run.memory.record.episodes.newest(10)
    assert episodes["episode"].tolist() == [0, 1]
    assert episodes["end_tick"].tolist() == [3, 5]
    assert episodes["length"].tolist() == [4, 2]
    assert episodes["return"].tolist() == [0.0 + 0.5 + 1.0 + 1.5, 2.0 + 2.5]


def test_the_metrics_say_what_the_environment_is_doing(run: Run) -> None:
    run.world.ends = {1: TERMINATED}
    run.ticks(3)
    assert [(call, doing) for call, doing, _ in run.world.doing] == [
        ("reset", Doing.RESETTING), ("step", Doing.STEPPING), ("step", Doing.STEPPING),
        ("reset", Doing.RESETTING), ("step", Doing.STEPPING),
    ]
    assert all(age_s == pytest.approx(0.0, abs=1e-6) for *_, age_s in run.world.doing)
    assert run.memory.record.doing == (Doing.WAITING, round(run.clock.now() * NANO))


@pytest.mark.parametrize(("reset_s", "slips"), [(0.5 * PERIOD_S, 0), (4.0, 1)])
def test_a_reset_uses_the_slack_of_its_tick_and_a_long_one_is_a_slip(
    run: Run, reset_s: float, slips: int
) -> None:
    run.world.ends = {1: TERMINATED}
    run.world.reset_s = reset_s
    run.ticks(2)
    ended_s = run.clock.now()
    run.ticks(2)
    rows, record = run.rows(), run.memory.record
    assert record.reset_ns == pytest.approx(reset_s * NANO, abs=2)
    assert record.slips == slips
    # The first tick of the episode comes after the reset, and its row has the true time.
    begins_s = ended_s if slips else ANCHOR_S + 2 * PERIOD_S
    assert rows["time_ns"][2] == pytest.approx(begins_s * NANO, abs=2)
    assert rows["lateness_ns"][2] == 0
    assert rows["time_ns"][3] - rows["time_ns"][2] == pytest.approx(PERIOD_S * NANO, abs=2)
    # No step was as long as the reset.
    assert record.step_lengths(rows["tick"]).tolist() == [0] * 4


def test_a_long_step_is_a_slip(run: Run) -> None:
    run.ticks(1)
    run.world.step_s = 7.0
    run.ticks(1)
    run.world.step_s = 0.0
    run.ticks(2)
    rows, record = run.rows(), run.memory.record
    assert record.slips == 1
    assert (rows["lateness_ns"] == 0).all()
    lengths = record.step_lengths(rows["tick"])
    assert lengths.tolist() == pytest.approx([0, 7 * NANO, 0, 0], abs=2)


@pytest.mark.parametrize(
    ("options", "deposits", "executed", "sources"),
    [
        ({"fill": 0}, {2: 1}, [0, 0, 1, 0], [DEFAULT, DEFAULT, AGENT, DEFAULT]),
        ({"default": "repeat", "fill": 0}, {2: 2, 5: 1}, [0, 0, 2, 2, 2, 1, 1],
         [DEFAULT, DEFAULT, AGENT, DEFAULT, DEFAULT, AGENT, DEFAULT]),
        ({"default": 2}, {}, [2, 2], [DEFAULT, DEFAULT]),
    ],
    ids=["one action per tick", "repeat", "constant"],
)
def test_ticks_without_an_action(
    memory: Memory, options: dict[str, Any], deposits: dict[int, int], executed: list[int],
    sources: list[Source],
) -> None:
    run = Run(memory, **options)
    for tick, action in deposits.items():
        run.deposit(tick, action)
    run.ticks(len(executed))
    assert run.world.received == executed
    run.check_rows(source=sources)


class Killed(Exception):
    """Ends the process at an instant that the test chooses."""


def die(*_: Any, **__: Any) -> None:
    raise Killed


def counted(memory: Memory) -> tuple[dict[str, Any], list[Any]]:
    record = memory.record
    names = ("agent", "reused", "default", "ticks", "decisions", "reward_low", "reward_high")
    return {name: getattr(record, name) for name in names}, record.episodes.newest().tolist()


@pytest.mark.parametrize("instant", ["publish", "append", "_count_tick", "_reset"])
@pytest.mark.parametrize("flags", [0, TERMINATED, TRUNCATED])
def test_the_last_row_is_counted_once_whenever_its_writer_was_killed(
    memory: Memory, monkeypatch: pytest.MonkeyPatch, instant: str, flags: int
) -> None:
    def lived(memory: Memory) -> Run:
        run = Run(memory)
        run.deposit(1, action=2, frame=0)
        run.deposit(4, action=1, frame=1)
        run.world.ends = {1: TERMINATED, 4: flags}
        run.ticks(4)
        return run

    whole = Memory(make_blueprint())
    lived(whole).ticks(1)
    run = lived(memory)
    where: Any = {"publish": memory.frames, "append": memory.record.episodes, "_reset": run.loop}
    with monkeypatch.context() as killed:
        killed.setattr(where.get(instant, process), instant, die)
        with contextlib.suppress(Killed):
            run.ticks(1)
    for _ in range(2):
        process.count_last_row(memory.ledger, memory.record, memory.first_tick)
        memory.ledger.truncate_episode()
    assert counted(memory) == counted(whole)
    assert memory.record.decisions == 2


def test_restart_goes_on_in_a_new_episode(memory: Memory) -> None:
    Run(memory).ticks(5)
    memory.ledger.truncate_episode()
    later = Run(memory, start_s=50.0, anchor_s=51.0)
    later.ticks(3)
    later.check_rows(
        tick=list(range(8)), episode=[0] * 5 + [1] * 3, flags=[0] * 4 + [TRUNCATED] + [0] * 3
    )
    assert memory.frames.episode_starts[:8].tolist() == [0] * 5 + [5] * 3
    assert later.rows()["time_ns"][5] == 51 * NANO
    assert memory.record.ticks == 8


def test_a_torn_last_row_does_not_number_the_episodes_anew(memory: Memory) -> None:
    """As a predecessor leaves it that is killed while it marks its last row."""
    first = Run(memory)
    first.ticks(3)
    memory.ledger._begin(memory.ledger.newest)
    second = Run(memory)
    second.ticks(2)
    second.check_rows(tick=[0, 1, 3, 4], episode=[0, 0, 1, 1])


def test_a_torn_first_row_of_an_episode_is_not_continued(memory: Memory) -> None:
    """A learner may have read it before the predecessor was killed while it marked it."""
    first = Run(memory)
    first.world.ends = {1: TERMINATED}
    first.ticks(3)
    read = memory.ledger.row(memory.ledger.newest)
    memory.ledger._begin(memory.ledger.newest)
    second = Run(memory)
    second.ticks(1)
    assert read is not None
    assert second.rows()["episode"][-1] > read["episode"]


def test_an_inference_that_two_lives_of_the_world_act_on_is_one_decision(memory: Memory) -> None:
    first = Run(memory)
    first.deposit(1, action=2, frame=0)
    first.ticks(1)
    # It was executed ahead of its tick, and is executed again.
    second = Run(memory)
    second.ticks(1)
    second.check_rows(source=[REUSED, AGENT], action=[2, 2])
    assert memory.record.decisions == 1


def test_faults_of_the_world_add_up(memory: Memory) -> None:
    for faults in (2, 3):
        run = Run(memory)
        run.world.cuts = 1
        run.ticks(1)
        run.world.cuts = faults
        run.ticks(2)
    assert memory.record.faults == 5
