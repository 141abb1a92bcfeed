"""The comparison across latencies: what is run, what is left of it, and what is concluded."""

from argparse import Namespace

import pytest
from matplotlib import pyplot

from benchmarks.comparison import processes_of, save, saved_runs
from benchmarks.latency import (
    Baseline,
    Planned,
    draw,
    late_returns,
    over_seeds,
    plan,
    table,
    verdict,
    waves,
)
from rtagent.config import GAME_BOY_HZ

NOTHING = Baseline(-2.0, 0.5)


def run_of(contender, ticks, mean, seed=0):
    planned = Planned(contender, ticks, seed)
    return {
        **planned._asdict(), "processes": processes_of(contender, ticks), "mean_return": mean,
        "standard_error": 0.1, "episodes_counted": 9, "inaction_fraction": 0.25, "updates": 1234,
    }


def pair(ticks, sequential, staggered, seed=0):
    return [
        run_of("sequential", ticks, sequential, seed), run_of("staggered", ticks, staggered, seed)
    ]


def missed(runs, ticks):
    return [claim for claim, holds in verdict(runs, ticks, NOTHING) if not holds]


def test_contenders_of_a_latency_are_neighbours_and_seeds_come_one_after_the_other():
    assert [(one.contender, one.ticks, one.seed) for one in plan([30, 5, 5], [1, 0])] == [
        ("sequential", 5, 1), ("staggered", 5, 1), ("sequential", 30, 1), ("staggered", 30, 1),
        ("sequential", 5, 0), ("staggered", 5, 0), ("sequential", 30, 0), ("staggered", 30, 0),
    ]


def test_settings_differ_in_nothing_but_the_inference_processes():
    sequential, staggered = (set(one.settings) for one in plan([5], [3]))
    assert sequential - staggered == {
        "inference.processes=1", "inference.algorithm=unstaggered"
    }
    assert sequential & staggered == {
        f"inference.injected_latency_ms={5e3 / GAME_BOY_HZ:.3f}", "run.seed=3"
    }


def test_both_contenders_of_a_latency_make_a_wave():
    assert [{one.ticks for one in wave} for wave in waves(plan([2, 5], [0]), 2, [])] == [{2}, {5}]
    assert [len(wave) for wave in waves(plan([2, 5, 10], [0]), 4, [])] == [4, 2]


def test_what_is_done_is_left_out_and_the_rest_keeps_its_partners():
    planned = plan([2, 5, 10], [0])
    done = [*pair(2, 0.0, 0.0), run_of("sequential", 5, 0.0)]
    assert waves(planned, 2, done) == [[planned[3]], planned[4:]]
    assert waves(planned, 2, [run_of("staggered", 2, 0.0, seed=1)]) == waves(planned, 2, [])


def test_the_end_of_an_episode_decides_whether_it_counts():
    assert late_returns([(39.0, 1.0), (41.0, 2.0), (59.0, 4.0)], minutes=1.0) == [2.0, 4.0]
    with pytest.raises(RuntimeError, match="no episode ended in the last third"):
        late_returns([(39.0, 1.0)], minutes=1.0)


def test_seeds_are_averaged_with_an_interval():
    runs = [run_of("staggered", 5, mean, seed) for seed, mean in enumerate((1.0, 3.0))]
    point = over_seeds([*runs, run_of("sequential", 5, 100.0)], "staggered")[5]
    assert point.mean == 2.0
    assert point.half == pytest.approx(12.71)
    assert over_seeds(runs[:1], "staggered")[5].half == 0.0


def test_all_claims_hold():
    runs = [*pair(0.5, 3.0, 2.0), *pair(5, 0.0, 1.0), *pair(30, -2.0, 1.0)]
    assert not missed(runs, [0.5, 5, 30])


def test_staggered_must_be_above_sequential_from_five_ticks_on():
    assert missed([*pair(2, 3.0, 2.0), *pair(5, 1.1, 1.0), *pair(30, -2.0, 1.0)], [2, 5, 30]) == [
        "5 ticks: staggered above sequential"
    ]


def test_staggered_must_be_above_doing_nothing_by_two_spreads():
    assert missed(pair(30, -2.0, -1.0), [30]) == ["30 ticks: staggered above -1.00"]
    assert not missed(pair(30, -2.0, -0.99), [30])


@pytest.mark.parametrize("sequential", [-2.51, -1.49])
def test_sequential_must_be_level_with_doing_nothing_at_the_largest_latency(sequential):
    runs = [*pair(5, 0.0, 1.0), *pair(30, sequential, 1.0)]
    assert missed(runs, [5, 30]) == [
        "30 ticks: sequential within 0.50 of doing nothing (-2.00)"
    ]


def test_a_claim_without_its_runs_does_not_hold():
    assert len(missed([run_of("staggered", 30, 1.0)], [30])) == 2
    assert len(missed([run_of("sequential", 30, -2.0)], [30])) == 2


def test_saved_runs_are_not_run_again(tmp_path):
    save(tmp_path / "runs.json", {"runs": pair(0.5, 1.0, 2.0)})
    args = Namespace(save=tmp_path / "runs.json", resume=True)
    assert not waves(plan([0.5], [0]), 2, saved_runs(args, {}))


def test_the_table_is_ordered_by_latency():
    lines = table([*pair(30, -2.0, 1.0), *pair(2, 3.0, 2.5)]).splitlines()
    assert [line.split()[:2] for line in lines[1:]] == [
        ["2", "sequential"], ["2", "staggered"], ["30", "sequential"], ["30", "staggered"]
    ]
    assert "2.50 +- 0.10" in lines[2]
    assert "25.0 %" in lines[2]


def test_the_picture_shows_what_is_there(tmp_path, monkeypatch):
    shown = []
    monkeypatch.setattr(pyplot, "close", shown.append)
    baselines = {"random": Baseline(-1.5, 0.5), "do nothing": NOTHING}
    runs = [*pair(2, 1.0, 1.1), *pair(30, -2.0, 1.0), run_of("staggered", 2, 1.3, seed=1)]
    draw(runs, baselines, tmp_path / "picture.png")
    monkeypatch.undo()
    axes = shown[0].axes[0]
    drawn = {line.get_label(): line.get_ydata() for line in axes.get_lines()}
    assert list(drawn["sequential"]) == [1.0, -2.0]
    assert list(drawn["staggered"]) == pytest.approx([1.2, 1.0])
    assert drawn["do nothing"][0] == -2.0
    assert drawn["random"][0] == -1.5
    assert [text.get_text() for text in axes.texts] == ["3", "33"]
    assert axes.get_xscale() == "log"
    assert (tmp_path / "picture.png").stat().st_size > 0
    pyplot.close(shown[0])


def test_a_picture_of_no_runs_yet(tmp_path):
    draw([], {"random": NOTHING, "do nothing": NOTHING}, tmp_path / "picture.png")
    assert (tmp_path / "picture.png").exists()
