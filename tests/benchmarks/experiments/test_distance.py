"""Learning at a distance, the experiment: how its contenders differ, and what it concludes."""

from __future__ import annotations

from matplotlib.figure import Figure

from benchmarks.experiments.distance import CONTENDERS, EXPERIMENT, conclusion, draw, overlap
from benchmarks.results import Results
from rtagent.config_sources import load_config


def test_the_contenders_differ_in_where_they_learn() -> None:
    here, link = (load_config(None, [*each], {}).model_dump() for each in CONTENDERS.values())
    assert (here["learning"].pop("where"), link["learning"].pop("where")) == ("here", "cluster")
    assert here["learning"].pop("publish_every") == link["cluster"]["weights_every"]
    assert link["cluster"].pop("emulated_rtt_ms") == 50.0
    del here["cluster"], link["cluster"], link["learning"]["publish_every"]
    assert here == link


def test_the_mean_of_each_must_lie_within_the_spread_of_the_other() -> None:
    assert overlap({"here": [1.0, 3.0, 2.0], "link": [1.5, 2.5, 2.2]})
    assert not overlap({"here": [1.0, 3.0, 2.0], "link": [3.1, 4.0, 5.0]})
    assert not overlap({"here": [1.0, 9.0, 2.0], "link": [0.5, 1.5, 2.2]})


def test_nothing_is_concluded_from_other_updates_or_one_seed() -> None:
    returns = {"here": [1.0, 3.0], "link": [1.5, 2.5]}
    assert conclusion(returns, {"here": 100.0, "link": 96.0}) == "within each other's spread"
    for updates in ({"here": 0.0, "link": 0.0}, {"here": 100.0, "link": 94.0}):
        assert conclusion(returns, updates).endswith("the updates are not the same")
    one = {name: each[:1] for name, each in returns.items()}
    assert conclusion(one, {"here": 9.0, "link": 9.0}).endswith("one seed has no spread")


def test_the_picture_says_what_came_out() -> None:
    episodes = [[60.0 * minute, 1.0] for minute in range(1, 5)]
    done = [
        {"params": params, "seed": seed, "figures": {
            "difference": 0.5, "return_here": 1.0 + seed, "return_link": 1.5 + seed,
            "updates_here": 4_290, "updates_link": 4_200,
            "curve_here": episodes, "curve_link": episodes,
        }}
        for params in EXPERIMENT.trials(False) for seed in range(3)
    ]
    figure = Figure()
    draw(Results(done), figure)
    title = figure.get_suptitle()
    assert title.startswith("here 1.0 to 3.0 (4,290 updates), link 1.5 to 3.5 (4,200 updates): ")
    assert title.endswith(": within each other's spread")
