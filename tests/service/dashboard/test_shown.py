"""What the page says: figures, verdicts, processes, events."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from rtagent.telemetry.figures.acting import Remote
from rtagent.telemetry.figures.cluster import Cluster
from rtagent.telemetry.figures.declaration import example
from tests.forked import eventually
from tests.service.conftest import RunningService, role
from tests.service.dashboard.conftest import event, expect_attribute, expect_text, figure, verdict

pytestmark = pytest.mark.browser


def test_shows_live_figures(page: Any, running: RunningService) -> None:
    assert page.url == running.settings.url
    expect_text(figure(page, "actions.agent"), "17,800")
    expect_text(figure(page, "actions.inaction_fraction_60s"), r"^0\.20 %$")
    expect_text(page.locator("#state"), "running")
    running.backend.figures["actions"]["agent"] = 18_060
    expect_text(figure(page, "actions.agent"), "18,060")
    assert page.locator("#injected").is_hidden()


def test_answers_the_four_questions(page: Any, running: RunningService) -> None:
    figures = running.backend.figures
    expect_text(verdict(page, "acting"), r"^In time: acting on 99\.8 % of ticks$")
    expect_text(verdict(page, "lateness"), r"^Actions are 5\.2 ticks old$")
    expect_text(page.locator("#verdict-lateness .detail"), "what that changes is unknown")
    expect_text(verdict(page, "learning"), r"^Learning: return 2\.37$")
    expect_text(verdict(page, "health"), "^Nothing is broken$")
    expect_attribute(page.locator("#verdict-acting"), "data-level", "good")

    for name in ("60s", "window"):
        figures["actions"][f"inaction_fraction_{name}"] = 0.8
    figures["actions"]["disagreement"] = 0.12
    figures["learning"]["paused"] = True
    expect_text(verdict(page, "acting"), r"^Too late: acting on 20\.0 % of ticks$")
    expect_attribute(page.locator("#verdict-acting"), "data-level", "bad")
    expect_text(page.locator("#verdict-lateness .detail"), r"12\.0 % are not what the agent chose")
    expect_text(verdict(page, "learning"), "^Learning is paused$")


def test_chunks_and_a_policy_server_have_figures_where_they_are(
    page: Any, running: RunningService
) -> None:
    figures = running.backend.figures
    figures["actions"]["from_chunk"], figures["inference"]["remote"] = 0.25, None
    expect_text(figure(page, "actions.from_chunk"), r"^25\.0 %$")
    network = figure(page, "inference.remote.round_trip_ms")
    assert network.is_hidden()
    figures["actions"]["from_chunk"], figures["inference"]["remote"] = 0.0, example(Remote)
    network.wait_for()
    assert figure(page, "actions.from_chunk").is_hidden()


def test_an_engine_is_shown_with_its_agreement_and_what_was_refused(
    page: Any, running: RunningService
) -> None:
    inference = running.backend.figures["inference"]
    engine, agreement = figure(page, "inference.engine"), figure(page, "inference.engine_agreement")
    inference |= {"engine": "openvino", "engine_precision": "int8", "engine_agreement": 0.998,
                  "engine_conversions": 41, "engine_refused": 0}
    expect_text(engine, "^openvino$")
    expect_text(agreement, r"^99\.8 %$")
    expect_text(agreement.locator("xpath=.."), "in int8$")
    # No model agreed: torch acts in the engine's place, and the page says why.
    inference |= {"engine": "torch", "engine_precision": None, "engine_agreement": None,
                  "engine_conversions": 0, "engine_refused": 3}
    expect_text(engine, "^torch$")
    expect_text(engine.locator("xpath=.."), "models refused 3$")
    assert agreement.is_hidden()
    inference["engine_refused"] = 0
    engine.wait_for(state="hidden")
    # As with policy.engine_agreement = 0.
    inference |= {"engine": "openvino", "engine_precision": "int8", "engine_agreement": 0.0}
    expect_text(agreement, r"^0\.00 %$")
    agreement.wait_for()


def test_a_cluster_has_a_panel_where_there_is_one(page: Any, running: RunningService) -> None:
    expect_text(figure(page, "actions.agent"), "17,800")
    panel = page.locator("#cluster")
    assert panel.is_hidden()
    cluster = example(Cluster)
    cluster["nodes"].append({
        "id": "robot-2", "share": 128, "generated": 9_000, "shipped": 800, "learned": 790,
    })
    running.backend.figures["cluster"] = cluster
    expect_text(page.locator("#cluster-link"), r"connected for 12 s, 3 batches in flight \(em")
    expect_text(figure(page, "cluster.alpha"), r"^1\.52$")
    expect_text(panel.locator("tbody"), "^robot-125661,44040,44839,936robot-21289,000800790$")
    assert page.locator("#emulated").is_visible()
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")

    running.backend.figures["cluster"] = cluster | {
        "connected": False, "reason": "nobody answers", "emulated": None, "alpha": None,
        "nodes": cluster["nodes"][:1],
    }
    expect_text(page.locator("#cluster-link"), "^cut for 12 s: nobody answers$")
    expect_attribute(page.locator("#cluster-link"), "data-level", "watch")
    expect_text(verdict(page, "learning"), "^The cluster is cut off$")
    expect_text(figure(page, "cluster.alpha"), "^unknown$")
    expect_text(panel.locator("tbody"), "^robot-125661,44040,44839,936$")
    assert page.locator("#emulated").is_hidden()

    del running.backend.figures["cluster"]
    panel.wait_for(state="hidden")


def test_unknown_is_never_a_zero(page: Any, running: RunningService) -> None:
    running.backend.figures["learning"]["loss"] = None
    running.backend.figures["replay"]["bytes"] = 65_000
    for name in ("60s", "window"):
        running.backend.figures["actions"][f"inaction_fraction_{name}"] = None
    expect_text(figure(page, "learning.loss"), "^unknown$")
    # Nor is what is little.
    expect_text(figure(page, "replay.bytes"), "^63 KiB$")
    expect_text(figure(page, "actions.inaction_fraction_60s"), "^unknown$")
    expect_text(verdict(page, "acting"), "^Not known yet$")
    expect_text(page.locator('[data-regret="regret.learning"] .value'), "^unknown$")


def test_nearly_nothing_is_not_shown_as_nothing_and_nearly_all_not_as_all(
    page: Any, running: RunningService
) -> None:
    """One tick of 60,000: a minute of a fast world."""
    inaction = figure(page, "actions.inaction_fraction_60s")

    def acting(share: str) -> bool:
        return f"acting {share}\N{NO-BREAK SPACE}%" in page.title()

    for missed, shown, acted in (
        (1, r"0\.01", "99.99"), (59_999, r"99\.99", "0.01"), (0, r"0\.00", "100.0"),
    ):
        running.backend.figures["actions"]["inaction_fraction_60s"] = missed / 60_000
        expect_text(inaction, rf"^{shown} %$")
        assert eventually(partial(acting, acted))


def test_a_small_return_is_not_shown_as_none_nor_as_less_than_none(
    page: Any, running: RunningService
) -> None:
    episodes = running.backend.figures["episodes"]
    for value, shown in (
        (-0.0042, r"-0\.0042"), (0.0996, r"0\.1"), (-0.0, r"0\.00"), (2e-9, "2e-9"),
    ):
        episodes["mean_return_100"] = episodes["last_return"] = value
        for name in ("mean_return_100", "last_return"):
            expect_text(figure(page, f"episodes.{name}"), f"^{shown}$")


def test_a_regret_is_in_units_of_reward_and_says_what_it_is(
    page: Any, running: RunningService
) -> None:
    inaction = page.locator('[data-regret="regret.inaction"]')
    expect_text(inaction.locator(".value"), "^160 reward$")
    expect_text(inaction.locator(".basis"), "^bound$")
    delay = page.locator('[data-regret="regret.delay"]')
    expect_text(delay.locator(".value"), "^unknown$")
    expect_text(delay.locator(".basis"), "^unknown$")
    running.backend.figures["regret"]["inaction"] = {
        "value": 12.5, "kind": "estimate", "unit": "reward",
    }
    expect_text(inaction.locator(".value"), r"^12\.5\d* reward$")
    expect_text(inaction.locator(".basis"), "^estimate$")


def test_injected_latency_is_named(page: Any, running: RunningService) -> None:
    running.backend.figures["inference"] |= {
        "injected_latency_ms": 82.0, "injected_latency_distribution": "outliers",
    }
    # Their mean is more than that.
    expect_text(page.locator("#injected"), r"padded to 82\.0 ms \(outliers\), so")
    tags = page.locator(".tag.injected").all()
    assert len(tags) >= 4
    for tag in tags:
        expect_text(tag, r"injected: 82\.0 ms")


def test_shows_learners_deadlines_and_memory(page: Any, running: RunningService) -> None:
    expect_text(figure(page, "learning.order"), "round-robin")
    expect_text(figure(page, "learning.staleness.mean"), "^unknown$")
    for hidden in ("#horizon", "#memory", "#paused"):
        assert page.locator(hidden).is_hidden()
    running.backend.figures["learning"].update(
        processes=3, paused=True, staleness={"mean": 1.5, "max": 4}
    )
    running.backend.figures["r3"].update(
        mode="step", time_ratio=0.25, data_ratio=0.5, batch_cap=128, used_bytes=850 << 20,
        memory_budget_bytes=900 << 20, horizons={"met": 7, "missed": None},
    )
    expect_text(figure(page, "learning.processes"), "^3$")
    expect_text(figure(page, "learning.staleness.mean"), r"^1\.50$")
    expect_text(figure(page, "learning.staleness.max"), "^4$")
    page.locator("#paused").wait_for(state="visible")
    expect_text(page.locator("#time-ratio b"), r"25\.0 %")
    expect_text(page.locator("#pace"), r"^Ahead: 25\.0 %")
    expect_attribute(page.locator("#path"), "aria-label", r"25\.0 % of the time, 50\.0 %")
    expect_text(figure(page, "r3.horizons.met"), "^7$")
    expect_text(figure(page, "r3.horizons.missed"), "^unknown$")
    expect_text(figure(page, "r3.batch_cap"), "^128$")
    expect_text(page.locator("#memory b"), "850 MiB of 900 MiB")

    def shares() -> list[float]:
        width = "element => element.offsetWidth / element.parentElement.offsetWidth"
        names = ("time-ratio", "data-ratio", "memory")
        return [page.locator(f"#{name} i").evaluate(width) for name in names]

    # The bars move slowly to their new length.
    assert eventually(lambda: shares() == pytest.approx([0.25, 0.5, 850 / 900], abs=0.02))


def test_says_why_the_batch_size_changed(page: Any, running: RunningService) -> None:
    # The first decision sets the size that a run begins with.
    decisions = [{"kind": "settings", "before": 0, "after": 32, "time_ratio": None,
                  "data_ratio": None}]
    deadlines = running.backend.deadlines
    running.backend.deadlines = lambda: {**deadlines(), "decisions": decisions}
    running.backend.figures["r3"]["mode"] = "step"
    expect_text(page.locator("#decision"), "^The batch size has not been changed lately")
    decisions.insert(0, {
        "kind": "step", "before": 32, "after": 64, "time_ratio": 0.4, "data_ratio": 0.2,
    })
    expect_text(page.locator("#decision"), r"Batch size 32 → 64: behind schedule: 20\.0 % of "
                r"the data used in 40\.0 % of the time up to the margin\.")
    # Without a mode nothing controls it any more.
    running.backend.figures["r3"]["mode"] = "off"
    expect_text(page.locator("#decision"), "^$")


def test_shows_a_failed_process(page: Any, running: RunningService) -> None:
    error = "Traceback (most recent call last):\n  <b>x</b>\nValueError: wrong shape"
    running.backend.report["roles"][3] = role(
        "learner", 0, state="failed", pid=None, restarts=5, last_error=error
    )
    row = page.locator("#processes tr").nth(3)
    expect_text(row.locator(".state"), "failed")
    expect_text(row.locator(".pid"), "unknown")
    expect_text(row.locator("summary"), "ValueError: wrong shape")
    row.locator("summary").click()
    expect_text(row.locator("pre"), "<b>x</b>")
    expect_text(verdict(page, "health"), "^learner 0 has failed$")
    expect_text(page.locator("#verdict-health .detail"), "ValueError: wrong shape")


def test_shows_a_killed_process_and_its_recovery(page: Any, running: RunningService) -> None:
    roles = running.backend.report["roles"]
    expect_text(verdict(page, "health"), "^Nothing is broken$")
    died = role("inference", 1, state="backoff", pid=None, restarts=1,
                last_error="killed by signal 9")
    roles[2] = died
    running.backend.history.insert(0, event(1, "died", "inference 1", error="killed by signal 9"))
    expect_text(verdict(page, "health"), "^1 process is restarting$")
    row = page.locator("#processes tr").nth(2)
    expect_text(row.locator(".state"), "backoff")
    expect_text(page.locator("#events li").first, "inference 1 died and is started again: killed")
    roles[2] = {**died, "state": "running", "pid": 4711}
    running.backend.history.insert(0, event(2, "restarted", "inference 1", restarts=1))
    expect_text(verdict(page, "health"), "^Nothing is broken$")
    expect_text(page.locator("#verdict-health .detail"), "5 processes run; inference 1 is back")
    expect_text(row.locator(".state"), "running")
    expect_text(page.locator("#events li").first, r"inference 1 is back \(restart 1\)")


def test_events_are_told_marked_and_filtered(page: Any, running: RunningService) -> None:
    # The last is older than what the charts show.
    running.backend.history[:] = [
        event(4, "slip", "environment", slips=1, slipped_ms=80.0),
        event(3, "set", "learning", before={"processes": 1}, after={"processes": 3}, by="http"),
        event(2, "solar_eclipse", None, depth=0.5, warned=True),
        {**event(1, "out_of_memory", "learner 0", batch_size=64, next_batch_size=32),
         "uptime_s": 1.0},
    ]
    events = page.locator("#events li .what")
    expect_text(events.nth(2), r"^solar eclipse, depth 0\.5, warned yes$")
    expect_text(events.nth(1), r"^learning: processes 1 → 3 \(by http\)$")
    # It did not happen today.
    expect_text(page.locator("#events time").first, r"^1 Jan, \d\d:00:31$")
    chart = page.locator('[data-series="learning.loss"]')
    expect_attribute(chart, "aria-label", "now .*; marked: learning: processes 1 → 3; slip$")
    page.get_by_label("Kind").select_option("solar_eclipse")
    assert eventually(lambda: events.count() == 1)
    expect_text(events, "^solar eclipse")
    # As in another run.
    del running.backend.history[1:]
    expect_text(page.locator("#no-events"), "^Nothing of this kind has happened yet")


MEMORY = {"replay_bytes": 300 << 20, "batch_bytes": 5 << 20, "ticks_limit": 90_000}
HORIZON = {"horizon": 3, "elapsed_s": 12.0, "deadline_s": 30.0, "consumed": 4000,
           "data_budget": 10_000}
SENTENCES: list[tuple[str, dict[str, Any], str]] = [
    ("out_of_memory", {"batches_that_did_not_fit": 1, "ticks_limit_before": 1800, **MEMORY},
     "^A batch did not fit, .* replay 300 MiB, batches 5 MiB$"),
    ("out_of_memory", {"batch_size": 64, "next_batch_size": 32},
     "^learner 0 ran out of memory: batch size 64 → 32$"),
    ("environment_fault", {"reason": "the reward is nan", "faults": 0},
     "^the reward is nan; 0 episodes cut short so far$"),
    ("world", {"news": "the car is connected"}, "^the car is connected$"),
    *(("placement", {"batch_size": 64, "cores": cores, "predicted_ms": 27.98, "one_core_ms": 39.87},
       rf"^learner 0 plans updates of 64 transitions on {said}$") for cores, said in (
        (1, r"one core: predicted are 27\.98 ms"),
        (2, r"two cores: predicted are 27\.98 ms, and 39\.87 ms on one"),
    )),
    ("horizon", {"outcome": "early-exit", **HORIZON},
     r"^Training horizon 3 ended early after 12\.0 s of 30\.0 s, 4,000 of 10,000 samples$"),
    ("memory_division", {"budget_bytes": -1, **MEMORY},
     "^Without a memory budget the replay may keep 90,000 ticks$"),
    ("memory_division", {"budget_bytes": 900 << 20, **MEMORY},
     "^Memory was divided again: replay 300 MiB, batches 5 MiB$"),
    ("memory_pressure", {"where": "/sys/fs/cgroup/robot", **MEMORY},
     "^/sys/fs/cgroup/robot runs short of memory, so memory was halved: replay 300 MiB, "),
    ("memory_pressure", {"where": "machine", **MEMORY},
     "^The machine runs short of memory, so memory was halved: replay 300 MiB, batches 5 MiB$"),
    *(("paused", {"seconds": 4.0, "alone": alone}, rf"^{said} for 4\.0 s$") for alone, said in (
        (None, "The supervisor, or everything, was held up"),
        (True, "The supervisor was held up"), (False, "Everything stood still"),
    )),
]


def test_events_are_sentences(page: Any, running: RunningService) -> None:
    running.backend.history[:] = [
        event(-number, kind, "learner 0", **details)
        for number, (kind, details, _) in enumerate(SENTENCES, -len(SENTENCES))
    ]
    told = page.locator("#events li .what")
    for place, (*_, said) in enumerate(SENTENCES):
        expect_text(told.nth(place), said)


@pytest.mark.parametrize(
    ("kind", "said"),
    [("checkpoint_failed", "No checkpoint .* disk full"),
     ("replay_failed", "The replay could not be saved: disk full")],
)
def test_trouble_of_the_last_minute_is_news(
    page: Any, running: RunningService, kind: str, said: str
) -> None:
    running.backend.history[:] = [event(1, kind, "learner 0", reason="disk full")]
    expect_text(verdict(page, "health"), "^Something went wrong$")
    expect_text(page.locator("#verdict-health .detail"), said)


def test_another_run_starts_with_empty_charts(page: Any, running: RunningService) -> None:
    """A late answer of the run before would put its events there, and hide those of this one."""
    chart = page.locator('[data-series="learning.loss"]')
    # So late that the charts do not lose it by its age while the test waits.
    old = event(9, "set", "learning", before={"processes": 1}, after={"processes": 3}, by="http",
                uptime_s=2_000.0)
    running.backend.history[:] = [old]
    expect_attribute(chart, "aria-label", "marked: learning: processes 1 → 3")
    late: list[tuple[Any, Any]] = []
    page.route("**/v1/events*", lambda route: late.append((route, route.fetch())), times=1)
    assert eventually(lambda: page.wait_for_timeout(100) or late)
    running.backend.history[:] = [event(1, "restarted", "learner 0", restarts=1)]
    running.backend.report = {**running.backend.report, "run_id": "another"}
    expect_text(page.locator("#run-id"), "another")
    ((route, response),) = late
    route.fulfill(response=response)
    expect_attribute(chart, "aria-label", "marked: learner 0 back$")
    expect_text(page.locator("#events"), "learner 0 is back")
