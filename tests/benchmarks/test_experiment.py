"""Experiments: what is left of one after an interruption, and its tables."""

from __future__ import annotations

import csv
import errno
import json
import math
import multiprocessing
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from multiprocessing import util
from pathlib import Path
from typing import Any

import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from benchmarks import experiment as engine
from benchmarks.experiment import Experiment, Options, perform, save
from benchmarks.results import Results
from rtagent.cli.bench import find_scripts
from rtagent.errors import UserError
from tests.forked import eventually

COMMAND = "rtagent experiment doubling"


def double(x: int, seed: int) -> dict[str, Any]:
    """Twice x, and a seed's own error."""
    if x == 13:
        raise ValueError("no luck\nat all")
    return {"twice": 2.0 * x + seed, "unknown": math.nan, "curve": [seed, x, math.nan]}


def draw(results: Results, figure: Any) -> None:
    results.line(figure.subplots(), "x", "twice")


def experiment_of(*values: int, wave: int = 2) -> Experiment:
    return Experiment(lambda quick: [{"x": x} for x in values], double, draw, wave=wave)


def begin(path: Path, seconds: float) -> None:
    """A call that says when it has begun and when it has ended in good order."""
    try:
        # Here, for the test may end the call as soon as it sees the file.
        path.touch()
        time.sleep(seconds)
    finally:
        path.with_suffix(".ended").touch()


class InThisProcess:
    """Carries out calls one after the other; Ctrl-C comes after so many."""

    def __init__(self, most: float = math.inf) -> None:
        self.most = most
        self.waves: list[int] = []

    def __call__(
        self, calls: dict[str, Callable[[], Any]], at_once: int
    ) -> Iterator[tuple[str, Any]]:
        self.waves.append(len(calls))
        for name, call in calls.items():
            if not self.most:
                raise KeyboardInterrupt
            self.most -= 1
            try:
                yield name, call()
            except ValueError as error:
                yield name, error


def interrupt(experiment: Experiment, options: Options, after: int) -> None:
    """Perform an experiment until Ctrl-C comes after so many calls."""
    with pytest.raises(KeyboardInterrupt):
        perform(experiment, options, InThisProcess(after))


@pytest.fixture
def options(tmp_path: Path) -> Options:
    return Options("doubling", tmp_path / "out", seeds=(0, 1), command=COMMAND)


def rows(path: Path) -> list[dict[str, str]]:
    with path.open() as file:
        return list(csv.DictReader(file))


def test_a_night_that_is_interrupted_goes_on(options: Options) -> None:
    interrupt(experiment_of(1, 2, 3), options, after=2)
    kept = json.loads((options.out / "results.json").read_text())
    assert [(each["params"]["x"], each["seed"]) for each in kept["trials"]] == [(1, 0), (2, 0)]
    rest = InThisProcess()
    record = perform(experiment_of(1, 2, 3), options, rest)
    assert rest.waves == [0, 2, 2]
    assert record["trials"][:2] == kept["trials"]
    assert [each["figures"]["twice"] for each in record["trials"]] == [2, 4, 6, 3, 5, 7]
    assert record["commands"] == [COMMAND]
    assert record["machine"]["cores"] == len(os.sched_getaffinity(0))
    assert {"processor", "kernel", "load", "torch"} <= record["machine"].keys()
    assert (options.out / "doubling.png").stat().st_size > 1000


def test_what_has_no_curve_of_numbers_has_no_table_of_them(options: Options) -> None:
    def pairs(seed: int) -> dict[str, Any]:
        return {"curve": [[0, 1], [1, math.inf]]}

    perform(Experiment(lambda quick: [{}], pairs, lambda *_: None), options, InThisProcess())
    assert not (options.out / "curves.csv").exists()
    trial, _ = json.loads((options.out / "results.json").read_text())["trials"]
    assert trial["figures"] == {"curve": [[0, 1], [1, None]]}
    assert len(rows(options.out / "results.csv")) == 2


def test_the_tables_have_every_trial_and_every_figure(options: Options) -> None:
    perform(experiment_of(1, 13), options, InThisProcess())
    found = rows(options.out / "results.csv")
    assert [(row["x"], row["seed"], row["twice"]) for row in found] == [
        ("1", "0", "2.0"), ("13", "0", ""), ("1", "1", "3.0"), ("13", "1", "")
    ]
    assert found[1]["failed"] == "ValueError: no luck at all"
    assert "curve" not in found[0]
    assert [list(row.values()) for row in rows(options.out / "curves.csv")] == [
        ["1", "0", "curve", "0", "1", ""], ["1", "1", "curve", "1", "1", ""]
    ]
    intervals = rows(options.out / "intervals.csv")
    twice, unknown, failed = intervals
    half = 12.7062 * math.sqrt(0.5) / math.sqrt(2)
    assert [twice[name] for name in ("x", "figure", "mean", "seeds")] == ["1", "twice", "2.5", "2"]
    assert [float(twice[name]) for name in ("low", "high")] == pytest.approx(
        [2.5 - half, 2.5 + half], rel=1e-5
    )
    assert (unknown["figure"], unknown["mean"]) == ("unknown", "")
    assert (failed["x"], failed["mean"], failed["failed"]) == ("13", "", "2")
    trials = json.loads((options.out / "results.json").read_text())["trials"]
    assert Results(trials).means() == [
        {"x": 1, "twice": "2.5 ± 6.4", "unknown": "unknown"}, {"x": 13, "failed": 2}
    ]


@pytest.mark.parametrize(("quick", "values", "told"), [
    (False, (1,), ""), (False, (1, 13), "2 trials failed"),
    (True, (1,), "quick: fewer and shorter trials"),
    (True, (1, 13), "quick: fewer and shorter trials; 2 trials failed"),
])
def test_a_picture_says_what_it_lacks(
    options: Options, monkeypatch: pytest.MonkeyPatch, quick: bool, values: tuple[int, ...],
    told: str,
) -> None:
    drawn: list[Figure] = []
    monkeypatch.setattr(Figure, "savefig", lambda figure, *_, **__: drawn.append(figure))
    perform(experiment_of(*values), replace(options, quick=quick), InThisProcess())
    assert "".join(each.get_text() for each in drawn[0].texts) == told


def test_what_a_picture_lacks_is_not_written_over_its_axes(
    options: Options, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn: list[Figure] = []
    monkeypatch.setattr(Figure, "savefig", lambda figure, *_, **__: drawn.append(figure))
    perform(experiment_of(1, 2), replace(options, quick=True), InThisProcess())
    canvas = FigureCanvasAgg(drawn[0])
    canvas.draw()
    (told,), (axes,) = drawn[0].texts, drawn[0].axes
    assert not told.get_window_extent().overlaps(axes.get_tightbbox(canvas.get_renderer()))


def test_what_failed_is_tried_again(options: Options) -> None:
    perform(experiment_of(1, 13), options, InThisProcess())
    again = InThisProcess()
    record = perform(experiment_of(1, 13), options, again)
    assert again.waves == [1, 1]
    assert sum("failed" in trial for trial in record["trials"]) == 2


def test_more_seeds_and_parameters_are_added(options: Options) -> None:
    perform(experiment_of(1), options, InThisProcess())
    more = Options("doubling", options.out, seeds=(1, 2), command="another")
    added = InThisProcess()
    record = perform(experiment_of(1, 2), more, added)
    assert added.waves == [1, 2]
    assert len(record["trials"]) == 5
    assert record["commands"] == [COMMAND, "another"]


@pytest.mark.parametrize(("name", "now"), [
    ("version", "9.9.9"), ("code", {"commit": "0" * 40, "modified": False}), ("quick", True),
    ("experiment", "other"),
])
def test_trials_under_other_conditions_are_not_mixed(
    options: Options, name: str, now: object
) -> None:
    interrupt(experiment_of(1, 2), options, after=1)
    path = options.out / "results.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {name: now}))
    with pytest.raises(UserError, match=f"holds trials made with {name}.*--anew"):
        perform(experiment_of(1, 2), options, InThisProcess())
    anew = Options(options.name, options.out, seeds=(0,), anew=True)
    assert len(perform(experiment_of(1), anew, InThisProcess())["trials"]) == 1


def test_begun_anew_nothing_old_goes_on_even_if_nothing_new_is_finished(options: Options) -> None:
    perform(experiment_of(1), options, InThisProcess())
    interrupt(experiment_of(1), replace(options, anew=True), after=0)
    rest = InThisProcess()
    perform(experiment_of(1), options, rest)
    assert sum(rest.waves) == 2


def test_begun_anew_no_old_table_or_picture_stands_beside_new_trials(options: Options) -> None:
    perform(experiment_of(1), options, InThisProcess())
    (options.out / "notes.txt").touch()
    interrupt(experiment_of(5), replace(options, anew=True), after=1)
    assert {each.name for each in options.out.iterdir()} == {"results.json", "notes.txt"}


def test_the_code_may_not_change_within_an_experiment_and_the_results_may(
    options: Options, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def git(*arguments: str) -> None:
        who = ["-c", "user.name=a", "-c", "user.email=a@example.org"]
        subprocess.run(["git", "-C", tmp_path, *who, *arguments], check=True)

    code, kept = tmp_path / "rtagent" / "code.py", options.out / "results.json"
    for file in (code, kept):
        file.parent.mkdir()
        file.write_text("old")
    git("init", "-q")
    git("add", "-A")
    git("commit", "-qm", "first")
    monkeypatch.setattr(engine, "CHECKOUT", tmp_path)
    interrupt(experiment_of(1, 2), replace(options, anew=True), after=1)
    interrupt(experiment_of(1, 2), options, after=1)
    assert len(json.loads(kept.read_text())["trials"]) == 2
    for edit in ("new", "newer"):
        code.write_text(edit)
        with pytest.raises(UserError, match="holds trials made with code"):
            perform(experiment_of(1, 2), options, InThisProcess())
        interrupt(experiment_of(1, 2), replace(options, anew=True), after=1)
    assert len(perform(experiment_of(1, 2), options, InThisProcess())["trials"]) == 4


def test_what_is_finished_is_only_drawn_whatever_the_version_is(options: Options) -> None:
    perform(experiment_of(1), options, InThisProcess())
    path = options.out / "results.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"version": "0.0.1"}))
    assert perform(experiment_of(1), options, InThisProcess())["version"] == "0.0.1"


def test_a_folder_that_cannot_be_written_to_is_refused_at_once(options: Options) -> None:
    # Not even root writes there.
    with pytest.raises(OSError, match="/proc"):
        perform(experiment_of(1), replace(options, out=Path("/proc")), InThisProcess())


def test_a_folder_that_has_become_read_only_is_refused_before_a_trial_is_lost(
    options: Options, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(dir: Path) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(dir))

    interrupt(experiment_of(1, 2), options, after=1)
    monkeypatch.setattr(engine, "TemporaryFile", refused)
    rest = InThisProcess()
    with pytest.raises(OSError, match="Read-only"):
        perform(experiment_of(1, 2), replace(options, anew=True), rest)
    with pytest.raises(OSError, match="Read-only"):
        perform(experiment_of(1, 2), options, rest)
    assert not rest.waves
    assert len(json.loads((options.out / "results.json").read_text())["trials"]) == 1


def test_two_do_not_write_into_one_folder(options: Options) -> None:
    """The one that saved last left out what the other had finished."""

    def another(calls: dict[str, Callable[[], Any]], _: int) -> Iterator[tuple[str, Any]]:
        if calls:
            with pytest.raises(UserError, match="another experiment writes its results there"):
                perform(experiment_of(2), options, InThisProcess())
            refused.append(len(calls))
        yield from InThisProcess()(calls, 1)

    refused: list[int] = []
    record = perform(experiment_of(1), options, another)
    assert refused == [2]
    assert len(perform(experiment_of(1, 2), options, InThisProcess())["trials"]) == 4
    assert len(record["trials"]) == 2


def test_a_damaged_folder_is_refused(options: Options) -> None:
    options.out.mkdir()
    (options.out / "results.json").write_text("{")
    with pytest.raises(UserError, match="not readable"):
        perform(experiment_of(1), options, InThisProcess())
    for others in ("[]", '{"accuracy": 1}', '{"trials": 3}'):
        (options.out / "results.json").write_text(others)
        with pytest.raises(UserError, match="is of no experiment; name another --out"):
            perform(experiment_of(1), options, InThisProcess())


def test_an_interrupted_save_leaves_the_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "runs.json"
    save(path, {"runs": [1]})

    def interrupted(*paths: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "replace", interrupted)
    with pytest.raises(KeyboardInterrupt):
        save(path, {"runs": [1, 2]})
    assert json.loads(path.read_text()) == {"runs": [1]}


def test_waves_keep_their_partners(options: Options) -> None:
    pairs = experiment_of(1, 2, 3, 4, wave=2)
    interrupt(pairs, options, after=1)
    rest = InThisProcess()
    perform(pairs, options, rest)
    assert rest.waves == [1, 2, 2, 2]


def test_only_some_trials(options: Options) -> None:
    only = Options("doubling", options.out, seeds=(0,), only=("x=2",))
    record = perform(experiment_of(1, 2), only, InThisProcess())
    assert [each["params"] for each in record["trials"]] == [{"x": 2}]
    with pytest.raises(UserError, match="--only y=1: no such trial; the parameters are x"):
        perform(experiment_of(1, 2), Options("d", options.out, only=("y=1",)), InThisProcess())
    with pytest.raises(UserError, match="--only x=7: no such trial; x is one of 1, 2, 12"):
        perform(experiment_of(1, 2, 12), Options("d", options.out, only=("x=7",)), InThisProcess())


def test_tables_and_pictures_have_the_order_of_the_experiment(options: Options) -> None:
    experiment = experiment_of(3, 1, 2)
    for chosen in ("x=2", "x=3", "x=1"):
        only = Options("doubling", options.out, seeds=(1, 0), only=(chosen,))
        record = perform(experiment, only, InThisProcess())
    found = [(each["params"]["x"], each["seed"]) for each in record["trials"]]
    assert found == [(3, 0), (1, 0), (2, 0), (3, 1), (1, 1), (2, 1)]
    assert Results(record["trials"]).values("x") == [3, 1, 2]


def test_what_is_virtual_needs_no_partners() -> None:
    """So it runs first, as many at once as there are cores."""
    times = ["wall clock", "virtual", "wall clock", "virtual", "virtual", "wall clock"]
    planned = [{"params": {"time": time, "x": x}, "seed": 0} for x, time in enumerate(times)]
    waves = engine._waves(experiment_of(wave=2), planned)
    assert [[trial["params"]["x"] for trial in wave] for wave in waves] == [[1, 3, 4], [0, 2], [5]]
    cores = len(os.sched_getaffinity(0))
    assert [engine.at_once(wave) for wave in waves] == [cores, 2, 1]


@pytest.mark.process
def test_trials_run_in_processes_of_their_own(options: Options) -> None:
    trials = perform(experiment_of(1, 13), options)["trials"]
    assert [trial.get("figures", {}).get("twice") for trial in trials] == [2, None, 3, None]


@pytest.mark.parametrize("name", find_scripts("benchmarks/experiments", "EXPERIMENT = "))
def test_every_experiment_has_a_short_form(name: str) -> None:
    experiment = engine.load(name)
    quick, whole = ([dict(each) for each in experiment.trials(size)] for size in (True, False))
    assert 0 < len(quick) <= len(whole)
    assert quick == json.loads(json.dumps(quick))
    assert len({json.dumps(each) for each in whole}) == len(whole)


@pytest.mark.process
def test_after_an_interruption_no_call_that_waits_is_begun(tmp_path: Path) -> None:
    """A process whose call was ended took the next one, and the command waited for it."""
    paths = [tmp_path / name for name in ("first", "second", "third", "fourth")]
    calls = {path.name: partial(begin, path, 60.0 * bool(paths.index(path))) for path in paths}
    running = engine.outcomes(calls, at_once=1)
    assert next(running) == ("first", None)
    assert eventually(paths[1].exists)
    running.close()
    assert eventually(lambda: not multiprocessing.active_children())
    assert {path.name for path in tmp_path.iterdir()} == {
        "first", "first.ended", "second", "second.ended",
    }


@pytest.mark.process
def test_ctrl_c_at_a_terminal_does_not_end_a_process_that_begins(
    monkeypatch: pytest.MonkeyPatch
) -> None:
    """It ended with a traceback of Python's, above what the command says."""
    start = util.spawnv_passfds

    def interrupted(*command: Any) -> int:
        process = start(*command)
        os.kill(process, signal.SIGINT)
        return process

    monkeypatch.setattr(util, "spawnv_passfds", interrupted)
    assert list(engine.outcomes({"call": partial(max, 1, 2)}, at_once=1)) == [("call", 2)]
