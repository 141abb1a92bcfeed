"""What single experiments measure, against plain transcriptions."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from matplotlib.figure import Figure

import rtagent
import rtagent.virtual
from benchmarks import runs
from benchmarks.experiment import VIRTUAL
from benchmarks.experiments import (
    discounting,
    duel,
    long_haul,
    long_haul_trial,
    model_size,
    paper_games,
    pending_actions,
    processes_needed,
    r3,
    r3_memory,
    recurrent,
    staggering_modes,
)
from benchmarks.results import Results
from rtagent.config import GAME_BOY_HZ, Config, LearningConfig
from rtagent.config_sources import load_config
from rtagent.staggering.simulator import Kill, Restart

WHOLE_RUNS: dict[str, Callable[[], Any]] = {
    "duel": lambda: duel.run("staggered", 0, 1.0, 1),
    "model-size, injected": lambda: model_size.run(
        "starfall", "staggered", 0, 1.0, ticks=5.0, time="virtual"),
    "model-size, computed": lambda: model_size.run(
        "duel", "sequential", 0, 1.0, width=1, time="wall clock", policy="k=1"),
    "paper-games": lambda: paper_games.run("battles", "staggered", 1.0, 1, 0),
    "paper-games, tetris": lambda: paper_games.run("tetris", "staggered", 1.0, 1, 0, 2.0),
    "r3, memory": lambda: r3_memory.run(r3.WORLDS["cartpole"], "step", 0, "with", 80),
    "others, and benchmarks": lambda: runs.acting_run().__enter__(),
}


@pytest.mark.parametrize("name", WHOLE_RUNS)
def test_settings_of_the_shell_change_no_run(
    name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Else the trials of a folder would differ by what nobody has written down."""
    configs: list[Config] = []

    def asked(config: Config, **_: Any) -> None:
        configs.append(config)
        raise InterruptedError

    monkeypatch.setenv("RTAGENT_LEARNING__BURN_IN", "3")
    monkeypatch.setattr(rtagent, "Runtime", asked)
    monkeypatch.setattr(rtagent.virtual, "run", asked)
    monkeypatch.setattr(paper_games, "_kept", lambda *parts: tmp_path)
    with pytest.raises(InterruptedError):
        WHOLE_RUNS[name]()
    assert configs[0].learning.burn_in == LearningConfig().burn_in


def test_settings_of_the_shell_change_no_trial_of_long_haul(
    monkeypatch: pytest.MonkeyPatch
) -> None:
    usual = long_haul_trial._config(long_haul.STANDARD)
    monkeypatch.setenv("RTAGENT_LEARNING__GAMMA", "0.5")
    assert long_haul_trial._config(long_haul.STANDARD) == usual


def test_the_smallest_number_that_is_enough() -> None:
    for least_enough in range(1, 9):
        assert processes_needed.smallest(lambda n, k=least_enough: n >= k, 8) == least_enough
    assert processes_needed.smallest(lambda n: False, 8) is None


@pytest.mark.parametrize("ticks", [0.5, 1.0, 3.7, 12.4])
def test_round_robin_learners_are_as_many_as_the_gradient_has_ticks(ticks: float) -> None:
    """Without noise: N learners make N updates in a gradient and its turn to be applied."""
    formula = next(n for n in range(1, 99) if n / (ticks + processes_needed.APPLY) >= 0.99)
    assert processes_needed.simulated_learners(ticks, 0.0, 0, updates=4000) == formula


@pytest.mark.parametrize(("ticks", "mode", "most"), [(2, "adaptive", 3), (5, "maximum-time", 6)])
def test_acting_takes_as_many_processes_as_an_inference_has_ticks(
    ticks: float, mode: str, most: int
) -> None:
    found = processes_needed.run("simulated", "acting", mode, 0, time="virtual", ticks=ticks)
    assert found["formula"] == most
    assert ticks <= found["needed"] <= most


def test_seeds_that_found_a_number_do_not_stand_for_those_that_need_more() -> None:
    results = Results([
        {"params": {"ticks": ticks}, "seed": seed, "figures": {"needed": needed}}
        for ticks, numbers in ((5, (7, 7, 7)), (10, (19, None, None)))
        for seed, needed in enumerate(numbers)
    ])
    axes = Figure().subplots()
    results.line(axes, "ticks", "needed")
    assert list(axes.lines[0].get_xdata()) == [5]
    told = {row["ticks"]: row.get("unknown", 0) for row in results.intervals()}
    assert told == {5: 0, 10: 2}
    assert [row["needed"] for row in results.means()] == ["7 ± 0", "19 (unknown in 2 of 3)"]


def test_who_is_killed_is_restarted_half_a_second_later() -> None:
    kill, restart, *_ = staggering_modes.events_of("kill, restart", 6, 60.0)
    assert (kill, restart) == (Kill(17.0, 2), Restart(17.5, 2))
    assert staggering_modes.events_of("kill", 1, 60.0) == (Kill(17.0, 0),)
    assert staggering_modes.events_of("rescale", 1, 60.0) == ()


def test_one_outlier_does_not_slow_adaptive_for_the_rest_of_the_run() -> None:
    told = {"time": "virtual", "disturbed": "one outlier", "processes": 9, "seconds": 60.0}
    found = {
        mode: staggering_modes.run(**told, mode=mode, seed=0)["inaction_percent"]
        for mode in ("adaptive", "published-maximum-time")
    }
    assert found["adaptive"] < 1.0
    assert found["published-maximum-time"] > 50.0


def test_the_contenders_of_a_policy_are_neighbours() -> None:
    """So they make a wave, and see the same machine."""
    played = [each for each in model_size.trials(quick=False) if each["time"] == "wall clock"]
    for sequential, staggered in zip(played[::2], played[1::2], strict=True):
        assert (sequential["contender"], staggered["contender"]) == model_size.CONTENDERS
        assert sequential["policy"] == staggered["policy"]


@pytest.mark.parametrize("quick", [True, False])
def test_a_latency_that_nobody_computes_is_called_injected(quick: bool) -> None:
    played = [each for each in model_size.trials(quick) if each["time"] != "none"]
    for each in played:
        assert ("injected" in each["policy"]) == ("ticks" in each) == (each["time"] == "virtual")
    named = {each["policy"]: each for each in played}
    largest = named[f"k=98, {model_size.LARGEST_TICKS} ticks injected"]
    assert largest["ticks"] == pytest.approx(0.453 * (98 / 29) ** 2 * GAME_BOY_HZ, abs=1)


@pytest.mark.parametrize("game", ["starfall", "duel"])
@pytest.mark.parametrize(
    ("width", "ticks"), [(7, None), (None, 5.0), (None, model_size.LARGEST_TICKS)]
)
def test_contenders_differ_in_how_they_act_alone(
    game: str, width: int | None, ticks: float | None
) -> None:
    sequential, staggered = (
        load_config(overrides=model_size.settings(game, name, width, ticks))
        for name in model_size.CONTENDERS
    )
    assert sequential.learning == staggered.learning
    assert sequential.learning.discount == "ticks", "so that both maximise the same"
    assert sequential.policy == staggered.policy
    assert sequential.inference.sequential
    assert sequential.inference.processes == 1
    assert staggered.inference.algorithm == "adaptive"
    latency = 0.0 if ticks is None else round(1e3 * ticks / GAME_BOY_HZ, 3)
    for each in (sequential, staggered):
        assert each.inference.injected_latency_ms == latency


def test_the_end_of_an_episode_decides_whether_it_counts() -> None:
    episodes = [(39.0, 1.0), (41.0, 2.0), (59.0, 4.0)]
    assert model_size.score("starfall", episodes, minutes=1.0) == 3.0
    assert model_size.score("duel", [*episodes, (60.0, -1.0), (61.0, 0.0)], minutes=1.5) == 2.0
    with pytest.raises(RuntimeError, match="no episode ended in the last third"):
        model_size.score("starfall", episodes[:1], minutes=1.0)


def test_both_modes_run_with_the_default_margin_and_with_the_rule_of_the_paper() -> None:
    for mode in ("episode", "step"):
        assert r3.CONTENDERS[mode] == (mode, 0.15)
        assert r3.CONTENDERS[f"{mode} margin 0"] == (mode, 0.0)
        wanted = {"mode": mode, "deadline_s": 2.0, "data_budget": 100}
        assert r3.horizon_settings(f"{mode} margin 0", 2.0, 100) == wanted


@pytest.mark.parametrize("contender", ["sequential", "staggered"])
def test_ticks_and_decisions_differ_in_what_is_counted_alone(contender: str) -> None:
    ticks, decisions = (
        discounting.config_of(contender, 2.0, each, seed=3) for each in discounting.DISCOUNTS
    )
    assert ticks.inference == decisions.inference
    assert ticks.inference.processes == (1 if contender == "sequential" else 3)
    assert ticks.learning.model_copy(update={"discount": "decisions"}) == decisions.learning


@pytest.mark.parametrize("handled", [True, False])
def test_a_learner_that_is_refused_memory_goes_on_or_ends(handled: bool) -> None:
    memory = r3_memory.Memory(100, handled)
    memory.ask(100)
    with pytest.raises(MemoryError) as refused:
        memory.ask(101)
    assert memory.refusals == 1
    assert memory.handled(refused.value) == handled
    assert not memory.handled(RuntimeError("something else"))


def test_what_is_learned_before_the_deadline_counts() -> None:
    """The deadline can be met with batches of 512, not with 256."""
    assert r3_memory.learned([]) == {"budget_percent": 0.0, "largest_batch": 0}
    enough, little = r3_memory.learned([512] * 1000), r3_memory.learned([256] * 1000)
    assert enough == {"budget_percent": 100.0, "largest_batch": 512}
    assert 50.0 < little["budget_percent"] < 100.0
    assert r3_memory.learned([256, 512])["budget_percent"] == 100.0 * 768 / r3_memory.BUDGET


@pytest.mark.parametrize("quick", [True, False])
def test_every_world_of_r3_is_tried_and_configured(quick: bool) -> None:
    tried = {each.get("world", "cartpole") for each in r3.trials(quick)}
    assert tried == set(r3.WORLDS)
    for world in r3.WORLDS.values():
        config = load_config(overrides=[*world, *r3.SETTINGS])
        assert config.replay.capacity >= config.learning.learning_starts


def test_trials_of_recurrent_policies_say_that_they_are_played_in_virtual_time() -> None:
    """So that as many of them run at once as there are cores."""
    assert {each["time"] for each in recurrent.trials(quick=False)} == {VIRTUAL}


@pytest.mark.parametrize(
    ("compared", "contenders"),
    [(pending_actions, ("with", "without")), (recurrent, ("lstm", "mlp"))],
)
def test_the_curves_of_a_pair_are_drawn(compared: ModuleType, contenders: tuple[str, str]) -> None:
    curve = [[float(second), float(second % 7)] for second in range(60)]
    figures = {"difference": 9.5}
    for contender, value in zip(contenders, (12.0, 2.5), strict=True):
        figures |= {f"return_{contender}": value, f"curve_{contender}": curve}
    places = compared.EXPERIMENT.trials(True)
    trials = [
        {"params": params, "seed": seed, "figures": figures}
        for params in places for seed in (0, 1)
    ]
    failed = {"params": places[0], "seed": 2, "failed": "no luck"}
    figure = Figure()
    compared.draw(Results([*trials, failed]), figure)
    assert "difference 9.5" in figure.axes[0].get_title()


@pytest.mark.parametrize(
    ("trials", "shown"),
    [
        ([{"what": "deadline", "mode": "step", "share": 1.0, "busy": 0}], [0, 1, 2, 5]),
        ([{"what": "batch", "batch": 16}, {"what": "batch", "batch": 64}], [3]),
        ([{"what": "changed", "mode": "step", "busy": 0}], [5]),
    ],
)
def test_panels_without_trials_are_left_out(
    trials: list[dict[str, object]], shown: list[int]
) -> None:
    figures = {
        "missed_percent": 10.0, "mean_return": 200.0, "samples_per_s": 9.0, "latencies": [0.9, 1.0]
    }
    figure = Figure()
    r3.draw(Results([{"params": each, "seed": 0, "figures": figures} for each in trials]), figure)
    assert [place for place in range(9) if figure.axes[place].get_visible()] == shown
    grids = {figure.axes[place].get_subplotspec().num1 for place in shown}
    assert grids == set(range(len(shown)))
    assert not any("_" in each.get_xlabel() + each.get_ylabel() for each in figure.axes)


def test_panels_of_failed_trials_alone_are_left_out() -> None:
    figure = Figure()
    params = {"what": "deadline", "mode": "step", "share": 1.0, "busy": 0}
    r3.draw(Results([{"params": params, "seed": 0, "failed": "no memory"}]), figure)
    assert not any(axes.get_visible() for axes in figure.axes)


def test_interference_is_shown_at_one_deadline() -> None:
    missed = {0.7: 80.0, 1.0: 10.0, 1.5: 0.0}
    trials = [
        {"params": {"what": "deadline", "algorithm": "double-dqn", "mode": "step", "share": share,
                    "busy": 0}, "seed": 0,
         "figures": {"missed_percent": percent, "mean_return": 200.0}}
        for share, percent in missed.items()
    ]
    figure = Figure()
    r3.draw(Results(trials), figure)
    drawn = [float(y) for line in figure.axes[5].lines for y in line.get_ydata()]
    assert 10.0 in drawn
    assert max(drawn) == 10.0
