"""The four answers, and where their thresholds lie."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from rtagent.telemetry.figures.cluster import Cluster
from rtagent.telemetry.figures.declaration import as_json, from_json
from rtagent.telemetry.figures.document import Stats, Verdict
from rtagent.telemetry.verdicts import (
    IN_TIME,
    TOO_LATE,
    acting,
    evenness,
    failure_in,
    health,
    lateness,
    learning,
    schedule,
    verdicts,
)

SLOW = {"state": "running", "update_ms": 5001.0}
NAMES = ("service", "environment", "learner 0", "inference 0", "inference 1")


def status(**changes: Any) -> dict[str, Any]:
    """Status of a run that goes well; `environment={...}` changes that role."""
    roles = [
        {"name": name, "role": name.split()[0], "state": "running", "restarts": 0,
         **changes.get(name.replace(" ", "_"), {})}
        for name in NAMES
    ]
    return {"state": "running", "roles": roles, "config": changes.get("config", {})}


def stats(**changes: Any) -> Stats:
    """Figures of a run that goes well; keys are `section__name`."""
    found: dict[str, Any] = {
        "clock": {"ticks": 1000, "rate_hz": 30.0, "target_rate_hz": 30.0,
                  "step_us": {"p50": 400.0}},
        "actions": {"inaction_fraction_window": 0.002, "interaction_ms": {"mean": 33.4},
                    "delay_ticks": {"mean": 2.0}, "disagreement": 0.05},
        "inference": {"ready": 2, "processes": 2},
        "learning": {"processes": 1, "paused": False, "updates": 100, "updates_per_s": 12.0,
                     "loss": 0.5},
        "replay": {"limit": 5000},
        "episodes": {"count": 62, "mean_return_100": 2.5, "mean_length_100": 40.0,
                     "trend": {"direction": "rising", "change": 1.25, "episodes": 62}},
    }
    for path, value in changes.items():
        section, name = path.split("__")
        found[section][name] = value
    return from_json(Stats, found)


def test_a_cluster_that_is_cut_is_a_warning() -> None:
    well = stats()
    link = {"connected": False, "since_s": 12.0, "reason": "nobody answers at 10.0.0.1:6379"}
    found = learning(replace(well, cluster=from_json(Cluster, link)))
    assert found == Verdict(
        "watch", "The cluster is cut off",
        "cut for 12 s: nobody answers at 10.0.0.1:6379; return 2.50",
    )
    connected = replace(well, cluster=from_json(Cluster, link | {"connected": True}))
    assert learning(connected) == learning(well)
    assert verdicts(connected, status()).cluster == Verdict(
        "good", "The cluster is connected", "connected for 12 s, unknown batches in flight"
    )
    assert verdicts(well, status()).cluster is None
    paused = stats(learning__paused=True)
    assert learning(replace(paused, cluster=from_json(Cluster, link))) == learning(paused)


def test_a_run_that_goes_well() -> None:
    found = verdicts(stats(), status())
    assert [found.acting.level, found.lateness.level, found.learning.level, found.health.level] == [
        "good"
    ] * 4
    assert found.acting.headline == "In time: acting on 99.8 % of ticks"
    assert found.health.detail == "5 processes run; no restarts of present processes"


@pytest.mark.parametrize(("inaction", "level", "word"), [
    (0.0, "good", "In time: acting on 100.0 % of ticks"),
    (IN_TIME, "good", "In time"), (0.015, "watch", "Often late"),
    (TOO_LATE - 1e-6, "watch", "Often late"), (TOO_LATE, "bad", "Too late"),
    (1.0, "bad", "Too late: acting on no tick"), (1e-5, "good", "acting on 99.99 %"),
    (0.0, "good", "Inaction 0.0 % "), (1e-3, "good", "Inaction 0.1 % "),
    (1e-3, "good", "acting on 99.9 %"),
])
def test_inaction(inaction: float, level: str, word: str) -> None:
    found = acting(stats(actions__inaction_fraction_window=inaction), status())
    assert found.level == level
    assert word in f"{found.headline}; {found.detail}"


def test_a_deadline_of_several_ticks_counts_instead_of_inaction() -> None:
    config = {"inference": {"action_deadline_ms": 100.0}}
    given = status(config=config)

    def judged(mean_ms: float | None) -> Verdict:
        return acting(stats(actions__inaction_fraction_window=0.6,
                            actions__interaction_ms={"mean": mean_ms}), given)

    assert (judged(99.0).level, judged(99.0).headline) == (
        "good", "In time: an action every 99.0 ms"
    )
    assert (judged(103.0).level, judged(103.0).headline) == (
        "bad", "Too late: an action every 103.0 ms"
    )
    assert judged(None).level == "none"
    # A deadline below a tick means every tick.
    config["inference"]["action_deadline_ms"] = 33.0
    assert judged(20.0).level == "bad"
    config["inference"]["action_deadline_ms"] = 34.0
    assert judged(20.0).level == "good"


@pytest.mark.parametrize(("inaction", "clock", "level", "headline"), [
    (1.0, {"window_s": 60.0, "uptime_s": 900.0}, "bad", "Too late: acting on no tick"),
    (1.0, {"window_s": 60.0, "uptime_s": 0.11}, "bad", "Too late: acting on no tick"),
    (1.0, {"window_s": 60.0, "uptime_s": 0.10}, "none", "Not known yet"),
    (1.0, {"window_s": 0.05, "uptime_s": 900.0}, "none", "Not known yet"),
    # In less than two deadlines a single action may have been in time.
    (0.6, {"window_s": 60.0, "uptime_s": 0.20}, "none", "Not known yet"),
    (0.6, {"window_s": 60.0, "uptime_s": 0.21}, "bad", "Too late: at most one new action"),
])
def test_a_deadline_of_several_ticks_is_missed_without_two_actions(
    inaction: float, clock: dict[str, float], level: str, headline: str
) -> None:
    silent = stats(
        actions__inaction_fraction_window=inaction, actions__interaction_ms={"mean": None},
        inference__ready=0, **{f"clock__{name}": value for name, value in clock.items()},
    )
    found = acting(silent, status(config={"inference": {"action_deadline_ms": 100.0}}))
    assert (found.level, found.headline) == (level, headline)
    assert f"inaction {100 * inaction:.1f} % in the " in found.detail
    assert found.detail.endswith("; 0 of 2 processes run")
    assert "No new action" not in found.detail


def test_a_slow_world_is_not_a_slow_agent() -> None:
    slow = stats(
        clock__rate_hz=4.98, clock__step_us={"p50": 200_400.0},
        actions__inaction_fraction_window=0.56,
    )
    found = acting(slow, status())
    assert (found.level, found.headline) == ("bad", "The world is too slow")
    assert "step takes 200 ms of a 33.3 ms tick" in found.detail
    assert "4.98 of 30 Hz" in found.detail
    for step_us, takes in ((31_000.0, "31 ms"), (1_200_400.0, "1200 ms")):
        slow = stats(clock__rate_hz=28.0, clock__step_us={"p50": step_us})
        assert f"step takes {takes} of" in acting(slow, status()).detail


@pytest.mark.parametrize("clock", [
    {"clock__rate_hz": 20.0}, {"clock__rate_hz": 20.0, "clock__step_us": {}},
    {"clock__step_us": {"p50": 33_000.0}},
    {"clock__rate_hz": None, "clock__step_us": {"p50": 200_400.0}},
    {"clock__target_rate_hz": None, "clock__step_us": {"p50": 200_400.0}},
])
def test_only_long_steps_at_a_low_rate_are_the_worlds_fault(clock: dict[str, Any]) -> None:
    found = acting(stats(actions__inaction_fraction_window=0.4, **clock), status())
    assert found.headline.startswith("Too late")


@pytest.mark.parametrize(("role", "level", "headline"), [
    ({"state": "failed", "last_error": "Traceback\nOSError: no track\n"}, "bad",
     "The world stands still"),
    ({"state": "backoff"}, "bad", "The world is started again"),
    ({"busy": "resetting"}, "watch", "The world is resetting"),
])
def test_a_world_that_stands_still_comes_first(
    role: dict[str, Any], level: str, headline: str
) -> None:
    found = acting(stats(), status(environment=role))
    assert (found.level, found.headline) == (level, headline)
    if "last_error" in role:
        assert found.detail == "It has failed: OSError: no track"


@pytest.mark.parametrize(
    ("disagreement", "level"), [(0.15, "good"), (0.2, "watch"), (0.5, "bad"), (None, "none")]
)
def test_the_verdict_on_lateness(disagreement: float | None, level: str) -> None:
    found = lateness(stats(actions__disagreement=disagreement))
    assert found.level == level
    assert found.headline == "Actions are 2.0 ticks old"
    assert found.detail.startswith("67 ms late; ")


@pytest.mark.parametrize(("changes", "level", "headline"), [
    ({}, "good", "Learning: return 2.50 and rising"),
    ({"learning__processes": 0}, "none", "Not learning"),
    ({"learning__paused": True}, "watch", "Learning is paused"),
    ({"learning__updates": 0}, "none", "Not learning yet"),
    ({"learning__updates_per_s": None}, "bad", "Learning stands still"),
    # As where a run without learners is given one.
    ({"learning__updates_per_s": None, "learning__workers": [{"state": "starting"}]}, "watch",
     "Not learning yet"),
    ({"learning__updates_per_s": None, "learning__workers": [{"state": "running"}],
      "learning__silent": 0}, "watch", "Not learning yet"),
    ({"learning__updates_per_s": None, "learning__workers": [{"state": "running"}],
      "learning__silent": 1}, "bad", "Learning stands still"),
    # While such an update is computed its learner is silent, and does not stand still.
    ({"learning__updates_per_s": None, "learning__workers": [SLOW], "learning__silent": 1},
     "watch", "Learning is slow"),
    ({"learning__updates_per_s": None, "learning__workers": [SLOW], "learning__silent": 0},
     "watch", "Learning is slow"),
    ({"learning__updates_per_s": 0.0, "learning__workers": [SLOW, {"state": "running"}]},
     "watch", "Learning is slow"),
    ({"learning__updates_per_s": 0.1, "learning__workers": [SLOW]}, "good",
     "Learning: return 2.50 and rising"),
    ({"learning__updates_per_s": None, "learning__workers": [SLOW | {"state": "starting"}]},
     "watch", "Not learning yet"),
    # Updates of a checkpoint, and none since: the replay is filled first.
    ({"learning__updates_per_s": 0.0, "learning__loss": None}, "none", "Not learning yet"),
    ({"learning__updates_per_s": None, "learning__loss": None}, "none", "Not learning yet"),
    ({"episodes__mean_return_100": None}, "none", "Learning"),
    ({"episodes__trend": None}, "none", "Learning: return 2.50"),
])
def test_learning(changes: dict[str, Any], level: str, headline: str) -> None:
    found = learning(stats(**changes))
    assert (found.level, found.headline) == (level, headline)


def test_before_the_first_update_the_verdict_says_what_a_learner_needs() -> None:
    found = learning(stats(learning__updates=0))
    assert found.detail.startswith("No update so far: a learner needs data first, and a core that")
    found = learning(stats(learning__loss=None))
    assert found.detail.startswith("No update since the start: a learner needs data first")


def test_the_verdict_says_if_updates_are_left_out() -> None:
    found = learning(stats(learning__updates=0, learning__skipped=3))
    assert (found.level, found.headline) == ("watch", "Not learning yet")
    assert "so far: loss or gradient was not finite, 3 updates left out; return" in found.detail
    found = learning(stats(learning__updates_per_s=0.0, learning__skipped=3))
    assert found.detail.endswith("0.0 updates/s, loss 0.5, 3 left out as not finite")
    assert "left out" not in learning(stats(learning__skipped=3)).detail


def test_the_verdict_says_if_there_may_never_be_anything_to_learn_from() -> None:
    found = learning(stats(learning__updates=0, episodes__mean_length_100=2.0))
    assert (found.level, found.headline) == ("watch", "Not learning yet")
    assert "episodes of 2.0 ticks are over before" in found.detail
    for unknown in ({"episodes__mean_length_100": None}, {"actions__delay_ticks": {}}):
        assert learning(stats(learning__updates=0, **unknown)).level == "none"
    found = learning(stats(learning__updates=0, clock__ticks=5000))
    assert (found.level, found.headline) == ("watch", "Not learning yet")
    assert "may take more than its 5000 ticks" in found.detail
    assert "5000" not in learning(stats(clock__ticks=5000)).detail
    starting = [{"state": "starting"}]
    found = learning(stats(learning__updates=0, clock__ticks=5000, learning__workers=starting))
    assert found.level == "none"
    # As figures of another version may lack it.
    found = learning(stats(learning__updates=0, clock__ticks=5000, replay__limit=None))
    assert found.level == "none"


def test_a_trend_names_its_episodes_and_is_told_only_if_there_is_one() -> None:
    assert "last 62 episodes" in learning(stats()).detail
    steady = {"direction": "steady", "change": -0.4, "episodes": 62}
    found = learning(stats(episodes__trend=steady))
    assert found.level == "none"
    assert "No significant trend in the last 62 episodes" in found.detail
    falling = {"direction": "falling", "change": -0.4, "episodes": 200}
    found = learning(stats(episodes__trend=falling))
    assert found.level == "watch"
    assert "-0.40 from the older to the newer half of the last 200 episodes" in found.detail
    assert "Too few episodes for a trend: 25;" in learning(
        stats(episodes__trend=None, episodes__count=25)
    ).detail


def test_small_returns_do_not_read_as_nothing() -> None:
    rising = {"direction": "rising", "change": 0.003, "episodes": 62}
    found = learning(stats(episodes__mean_return_100=0.0042, episodes__trend=rising))
    assert found.headline == "Learning: return 0.0042 and rising"
    assert found.detail.startswith("+0.003 from the older to the newer half")
    assert "return -0.0042" in learning(stats(episodes__mean_return_100=-0.0042)).headline
    assert "return 0.00 " in learning(stats(episodes__mean_return_100=0.0)).headline


def test_the_verdict_on_health() -> None:
    failed = status(learner_0={"state": "failed", "last_error": "a\nRuntimeError: no memory"})
    assert health(failed) == Verdict("bad", "learner 0 has failed", "RuntimeError: no memory")
    again = status(inference_1={"state": "backoff", "restarts": 2})
    assert health(again) == Verdict(
        "watch", "1 process is restarting", "inference 1; 2 restarts of present processes"
    )
    both = health(status(learner_0={"state": "failed"}, inference_1={"state": "failed"}))
    assert both.headline == "learner 0 and inference 1 have failed"
    assert both.detail == "it gave no reason"
    starting = {"state": "starting"}
    assert health(status(inference_1=starting)).headline == "1 process is starting"
    two = status(inference_0=starting, inference_1=starting)
    assert health(two).headline == "2 processes are starting"
    three = status(inference_0=starting, inference_1=starting, learner_0=starting)
    assert health(three).detail == "3 processes; no restarts of present processes"
    alone = {"roles": [{"name": "service", "state": "running", "restarts": 1}]}
    assert health(alone).detail == "1 process runs; 1 restart of present processes"
    assert health({}).level == "none"
    assert health({**status(), "state": "stopping"}).headline == "The daemon is stopping"


def test_training_ends_with_a_failed_process_that_it_needs() -> None:
    failed = {"state": "failed", "last_error": "a\nRuntimeError: no memory"}
    assert failure_in(status(learner_0=failed)) == "learner 0 has failed: RuntimeError: no memory"
    assert failure_in(status(service=failed)) is None
    assert failure_in(status(learner_0={"state": "backoff"})) is None
    assert failure_in({}) is None


def test_verdicts_name_the_time_that_figures_cover() -> None:
    found = acting(stats(clock__window_s=12.3), status())
    assert "in the last 12 s" in found.detail
    for old in ({}, {"clock__uptime_s": 60.0}):
        assert "in the last minute" in acting(stats(clock__window_s=60.0, **old), status()).detail
    young = stats(clock__window_s=60.0, clock__uptime_s=9.0)
    assert "in the 9 s since the start" in acting(young, status()).detail


def test_of_a_daemon_that_does_not_tell_its_rate_the_rest_is_judged() -> None:
    unknown = stats(clock__target_rate_hz=None)
    config = {"inference": {"action_deadline_ms": 100.0}}
    assert acting(unknown, status(config=config)).headline == "In time: acting on 99.8 % of ticks"
    assert lateness(unknown).detail.startswith("5.0 % are not what the agent chose")


def test_without_figures_there_are_no_verdicts() -> None:
    found = verdicts(from_json(Stats, {}), {})
    assert {each["level"] for each in as_json(found).values()} == {"none"}
    assert found.acting.detail == "No tick in the last minute; unknown of unknown processes run"


@pytest.mark.parametrize(("cv", "level", "word"), [
    (0.0, "good", "even"), (0.1, "watch", "uneven"), (0.3, "bad", "very uneven"),
    (None, "none", ""),
])
def test_evenness(cv: float | None, level: str, word: str) -> None:
    found = evenness(stats(actions__interaction_ms={"mean": 1.0, "cv": cv}))
    assert (found.level, found.headline) == (level, word)


@pytest.mark.parametrize(("time", "data", "level", "headline", "detail"), [
    (0.25, 0.27, "good", "On schedule", "data and time are used evenly"),
    (0.25, 0.3, "good", "Ahead", "5.0 % more of the data than of the time is used"),
    (0.25, 0.1, "watch", "Behind", "15.0 % less of the data than of the time is used"),
    (0.25, None, "none", "No horizon", "none is under way"),
    (None, 0.25, "none", "No horizon", "none is under way"),
])
def test_schedule(
    time: float | None, data: float | None, level: str, headline: str, detail: str
) -> None:
    ratios = {"r3": {"time_ratio": time, "data_ratio": data}}
    assert schedule(from_json(Stats, ratios)) == Verdict(level, headline, detail)
