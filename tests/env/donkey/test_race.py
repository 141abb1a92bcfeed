import pytest
from hypothesis import given
from hypothesis import strategies as st

from rtagent.env.donkey.race import GATE_HALF_WIDTH, OFF_ROAD, PING_S, Race, Rules

START = -0.01
"""In rounds: a little before the line."""


def racing(laps=1, time_limit_s=100.0, checkpoints=4):
    """A race that has just started at time 0."""
    race = Race(Rules(laps, time_limit_s, checkpoints), 0.0)
    assert race.start(0.0, START) == [{"msg_type": "race_start"}]
    return race


def drive(race, *rounds, time=1.0, cte=0.0):
    """Drive from place to place; the messages without pings."""
    said = [each for way in rounds for each in race.advance(time, way, cte)]
    return [each for each in said if each["msg_type"] != "ping"]


def kinds(said):
    return [each["msg_type"] for each in said]


def missed(checkpoint):
    return {"msg_type": "missed_checkpoint", "checkpoint": checkpoint}


def disqualified(reason, missed_cp=False):
    return [{"msg_type": "DQ", "missed_cp": missed_cp, "reason": reason}, {"msg_type": "race_stop"}]


@pytest.mark.parametrize("laps", [1, 3])
def test_the_last_lap_stops_the_race(laps):
    race = racing(laps)
    ways = [step / 50 for step in range(50 * laps)]
    assert drive(race, *ways) == []
    assert drive(race, laps - 1e-6) == []
    assert drive(race, laps) == [{"msg_type": "race_stop"}]
    assert drive(race, laps + 2.0, time=1000.0) == []


def test_in_the_lobby_nothing_counts_and_only_pings_are_said():
    race = Race(Rules(1, 10.0, 4), 0.0)
    assert race.in_lobby
    assert race.advance(PING_S - 0.1, 0.6, 9.0) == []
    assert race.advance(100.0, 2.0, 0.0) == [{"msg_type": "ping"}]
    race.start(100.0, START)
    assert not race.in_lobby
    assert drive(race, 0.5, time=109.0) == []


def test_pings_come_in_every_state():
    race = racing(time_limit_s=3.2 * PING_S)
    heard = [
        (time, kind) for time in range(1, round(6 * PING_S) + 1)
        for kind in kinds(race.advance(float(time), START, 0.0))
    ]
    pings = [time for time, kind in heard if kind == "ping"]
    assert pings == [PING_S * count for count in range(1, 7)]
    assert [kind for _, kind in heard if kind != "ping"] == ["DQ", "race_stop"]


def test_a_gate_is_gone_round_beside_the_road():
    race = racing()
    assert drive(race, 0.1, cte=GATE_HALF_WIDTH) == []
    assert drive(race, 0.3, cte=-GATE_HALF_WIDTH - 0.1) == [missed(1)]
    # The race goes on with the next gate.
    assert drive(race, 0.6, 0.8) == []
    assert drive(race, 1.1) == [{"msg_type": "race_stop"}]


def test_a_second_missed_gate_disqualifies():
    race = racing()
    said = drive(race, 0.1) + drive(race, 0.3, 0.6, cte=6.0)
    assert said == [missed(1), missed(2), *disqualified("missed checkpoints", missed_cp=True)]
    assert drive(race, 1.5, 2.5) == []


def test_who_is_put_behind_gates_has_left_them_out():
    race = racing()
    race.put(0.7)
    assert drive(race, 0.72) == []
    assert drive(race, 0.8) == [missed(0)]
    assert drive(race, 1.01) == [{"msg_type": "race_stop"}]


def test_the_finish_cannot_be_jumped_over():
    race = racing()
    assert drive(race, 0.1) == []
    race.put(1.1)
    assert drive(race, 1.2) == []
    assert drive(race, 1.3) == [missed(1), {"msg_type": "race_stop"}]


def test_to_and_fro_through_the_last_gate_is_allowed():
    race = racing()
    assert drive(race, 0.3, 0.2, 0.3, 0.2, 0.4) == []


def test_the_wrong_way_is_out_of_order():
    race = racing()
    assert drive(race, 0.6) == []
    # Back through gate 2, the last passed, is allowed; gate 3 is still due.
    assert drive(race, 0.4) == []
    assert drive(race, 0.2) == [missed(3)]
    # From there the gates are taken in their order again.
    assert drive(race, 0.3, 0.6, 0.8) == []
    assert drive(race, 0.4, 0.2) == [missed(0), *disqualified("missed checkpoints", missed_cp=True)]


def test_several_gates_in_one_step_are_all_driven_through():
    race = racing(checkpoints=50)
    assert kinds(drive(race, 0.35, 0.7, 0.999, 1.0)) == ["race_stop"]


@pytest.mark.parametrize("side", [-1.0, 1.0])
def test_leaving_the_road_disqualifies(side):
    race = racing()
    assert drive(race, 0.05) == drive(race, 0.1, cte=side * OFF_ROAD) == []
    assert drive(race, 0.1, cte=side * (OFF_ROAD + 0.1)) == disqualified("off the road")


def test_the_time_limit_holds_for_the_race_since_its_start():
    race = Race(Rules(1, 10.0, 4), 0.0)
    race.start(50.0, START)
    assert drive(race, 0.2, time=60.0) == []
    assert drive(race, 0.2, time=60.1) == disqualified("time limit exceeded")


def test_who_finishes_in_the_last_moment_has_finished():
    race = racing(time_limit_s=10.0)
    drive(race, 0.9)
    assert drive(race, 1.0, time=10.1) == [{"msg_type": "race_stop"}]


def test_a_race_can_be_started_anew():
    race = racing(time_limit_s=10.0)
    assert kinds(drive(race, 0.6, 0.3, 0.1, time=9.0)) == ["missed_checkpoint"]
    assert race.start(9.5, START) == [{"msg_type": "race_start"}]
    # The gate that was missed before does not count, nor does the time.
    assert drive(race, 0.1, 0.3, cte=0.0, time=19.0) == []
    assert drive(race, 0.6, cte=6.0, time=19.0) == [missed(2)]
    assert drive(race, 0.8, 1.0, time=19.0) == [{"msg_type": "race_stop"}]
    assert race.start(20.0, START) == [{"msg_type": "race_start"}]
    assert drive(race, 0.1, time=30.1) == disqualified("time limit exceeded")


@given(st.lists(st.tuples(st.floats(-3, 3), st.floats(-12, 12), st.booleans()), max_size=30))
def test_a_race_stops_once_and_then_is_silent(steps):
    race = racing(laps=2)
    said = []
    for rounds, cte, jumps in steps:
        if jumps:
            race.put(rounds)
        said += drive(race, rounds, cte=cte)
    assert kinds(said).count("race_stop") <= 1
    assert kinds(said).count("DQ") <= 1
    assert kinds(said).count("missed_checkpoint") <= 1 or "race_stop" in kinds(said)
    if "race_stop" in kinds(said):
        assert kinds(said)[-1] == "race_stop"
