"""The engine of experiments: trials times seeds, saved one by one, with intervals and a picture.

An experiment is a module of `benchmarks/experiments` with an `EXPERIMENT`: the trials, a function
that carries out one trial, and a picture. The parameters and figures of a trial are written to
`results.json` as soon as it ends, in one step, beside the commands, the commit and the machine. So
an interruption costs only the trials under way, and the same command continues. Results under
different conditions (size, version, code) are never mixed: such a folder is refused.
"""

from __future__ import annotations

import csv
import fcntl
import importlib
import json
import multiprocessing
import os
import platform
import signal
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from importlib import metadata
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn

import rtagent
from benchmarks.results import Results, Trial, identity
from rtagent.cli.output import finite, json_text, progress_bar
from rtagent.errors import UserError
from rtagent.files.atomic_write import atomic_write
from rtagent.placement.profile import processor_name
from rtagent.processes.scheduling import die_with_parent
from rtagent.telemetry.run_record import git_state

Params = Mapping[str, Any]
Calls = Mapping[str, Callable[[], Any]]
CarryOut = Callable[[Calls, int], Iterator[tuple[str, Any]]]

KEPT = "results.json"
TABLES = ("results.csv", "intervals.csv", "curves.csv")
VIRTUAL = "virtual"
CHECKOUT = Path(rtagent.__file__).parents[1]
CODE = ("rtagent", "benchmarks", "service", "examples")
"""What trials run. Not the whole checkout: results may be written into it."""
QUICK_SEEDS = 3
INTERRUPT = (signal.SIGINT,)


@dataclass(frozen=True)
class Experiment:
    """The trials of an experiment, how one is carried out, and the picture.

    Attributes:
        trials: quick -> the parameters of every trial: JSON values, durations included.
        run: (seed=..., **parameters) -> figures by name: numbers, None where unknown. Other JSON
            values (a curve) are saved, but have no interval. Runs in a process of its own.
        draw: draws the results on a Matplotlib figure.
        size: of the picture, inches.
        seeds: the default; `--quick` takes at most three of them.
        wave: how many trials begin together and share the machine. Trials whose parameter `time` is
            `virtual` do not depend on what else runs: as many run at once as there are cores.
    """

    trials: Callable[[bool], Iterable[Params]]
    run: Callable[..., dict[str, Any]]
    draw: Callable[[Results, Any], None]
    size: tuple[float, float] = (8.0, 4.5)
    seeds: tuple[int, ...] = (0, 1, 2)
    wave: int = 1


@dataclass(frozen=True)
class Options:
    """The options of `rtagent experiment`, which its `--help` explains."""

    name: str
    out: Path
    quick: bool = False
    seeds: Sequence[int] | None = None
    only: tuple[str, ...] = ()
    anew: bool = False
    command: str = ""


def load(name: str) -> Experiment:
    """The experiment that a module of `benchmarks/experiments` declares."""
    module = importlib.import_module(f"benchmarks.experiments.{name.replace('-', '_')}")
    experiment: Experiment = module.EXPERIMENT
    return experiment


def perform(
    experiment: Experiment, options: Options, carry_out: CarryOut | None = None
) -> dict[str, Any]:
    """Carry out the trials that are left, and write `results.json`, tables and picture.

    Args:
        experiment: the experiment.
        options: of the command line.
        carry_out: (calls by name, how many at once) -> names and outcomes. If None, `outcomes`.

    Returns:
        The content of `results.json`.

    Raises:
        UserError: the folder holds results under other conditions, or is written by another
            experiment; or an option names no trial.
        KeyboardInterrupt: the user has interrupted; all finished trials are saved.
    """
    usual = experiment.seeds[: QUICK_SEEDS if options.quick else None]
    seeds = usual if options.seeds is None else options.seeds
    every = [dict(params) for params in experiment.trials(options.quick)]
    places = {identity({"params": params}, 0): place for place, params in enumerate(every)}
    planned = chosen([
        {"params": params, "seed": seed} for seed in dict.fromkeys(seeds) for params in every
    ], options.only)

    def place(trial: Trial) -> tuple[int, int]:
        # Tables and pictures have the experiment's order, whatever was carried out first.
        return trial["seed"], places.get(identity(trial, 0), -1)

    with _held(options.out):
        record = _begun(options, planned)
        record["trials"].sort(key=place)
        columns = TextColumn(options.name), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()
        with progress_bar(*columns) as bar:
            done = {identity(trial) for trial in record["trials"]}
            task = bar.add_task("", total=len(planned))
            for wave in _waves(experiment, planned):
                left = {identity(trial): trial for trial in wave if identity(trial) not in done}
                bar.advance(task, len(wave) - len(left))
                calls = {key: partial(_timed, experiment.run, trial) for key, trial in left.items()}
                for key, outcome in (carry_out or outcomes)(calls, at_once(wave)):
                    kept = left[key] | _as_record(outcome)
                    record["trials"] = sorted([*record["trials"], kept], key=place)
                    record["ended"] = _now()
                    save(options.out / KEPT, record)
                    bar.advance(task)
                    if "failed" in kept:
                        print(f"{describe(kept)}: failed: {kept['failed']}", file=sys.stderr)
        _present(experiment, options, record)
    return record


def outcomes(calls: Calls, at_once: int) -> Iterator[tuple[str, Any]]:
    """Carry out calls in processes of their own; yields each result or error when it is there.

    Each process is killed with the program that began it, and gets SIGTERM when the generator is
    closed early, so that nothing goes on playing after an interruption.

    Args:
        calls: by name; they are pickled.
        at_once: how many run at the same time.
    """
    if not calls:
        return
    # The main thread of each process starts the daemon and lives as long as the daemon.
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(
        min(at_once, len(calls)), context, initializer=_prepare, initargs=(os.getpid(),)
    ) as pool:
        # Ctrl-C reaches all; the parent decides. A process begins without hearing it.
        signal.pthread_sigmask(signal.SIG_BLOCK, INTERRUPT)
        try:
            names = {pool.submit(_call, call): name for name, call in calls.items()}
        finally:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, INTERRUPT)
        try:
            for future in as_completed(names):
                error = future.exception()
                if error is not None and not isinstance(error, Exception):
                    raise error
                yield names[future], error or future.result()
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            for child in multiprocessing.active_children():
                child.terminate()
            raise


def save(path: Path, record: Mapping[str, Any]) -> None:
    """Replace the file as a whole: an interruption leaves the old one."""
    with atomic_write(path, f".{path.name}-") as write:
        write(json_text(record).encode())


def at_once(wave: Sequence[Mapping[str, Any]]) -> int:
    """How many trials of a wave run at the same time."""
    return _cores() if wave[0]["params"].get("time") == VIRTUAL else len(wave)


def describe(trial: Mapping[str, Any]) -> str:
    """Parameters and seed on one line."""
    named = [f"{name} {value}" for name, value in trial["params"].items()]
    return ", ".join([*named, f"seed {trial['seed']}"])


def _prepare(parent: int) -> None:
    die_with_parent(parent)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, INTERRUPT)
    signal.signal(signal.SIGTERM, _end)


def _end(*_: object) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # a second one would cut the orderly end short
    sys.exit(1)


def _call(call: Callable[[], Any]) -> Any:
    try:
        return call()
    except SystemExit:
        # The pool would take it for the call's result, and begin the next one.
        os._exit(1)


def _timed(run: Callable[..., dict[str, Any]], trial: Mapping[str, Any]) -> dict[str, Any]:
    begun = time.monotonic()
    found = run(seed=trial["seed"], **trial["params"])
    return {"figures": finite(found), "took_s": round(time.monotonic() - begun, 1)}


def _as_record(outcome: dict[str, Any] | Exception) -> dict[str, Any]:
    if isinstance(outcome, Exception):
        return {"failed": f"{type(outcome).__name__}: {' '.join(str(outcome).split())}"}
    return outcome


def chosen(planned: list[dict[str, Any]], only: Iterable[str]) -> list[dict[str, Any]]:
    """The trials with all the wanted parameters, each `NAME=VALUE`.

    Raises:
        UserError: there are none.
    """
    for each in only:
        name, _, value = each.partition("=")
        names = dict.fromkeys(name for trial in planned for name in trial["params"])
        if name not in names:
            raise UserError(f"--only {each}: no such trial; the parameters are {', '.join(names)}")
        there = dict.fromkeys(str(trial["params"].get(name)) for trial in planned)
        planned = [trial for trial in planned if str(trial["params"].get(name)) == value]
        if not planned:
            raise UserError(f"--only {each}: no such trial; {name} is one of {', '.join(there)}")
    return planned


def _waves(experiment: Experiment, planned: list[dict[str, Any]]) -> list[list[dict[str, Any]]]:
    """Trials that begin together: all those in virtual time, then the others, wave by wave.

    The whole plan is divided, whatever has been carried out of it: so a trial shares the machine
    with the same others each time, or, tried again after they have finished, with nobody.
    """
    size = experiment.wave
    virtual = [trial for trial in planned if trial["params"].get("time") == VIRTUAL]
    others = [trial for trial in planned if trial["params"].get("time") != VIRTUAL]
    waves = [others[start : start + size] for start in range(0, len(others), size)]
    return [virtual, *waves] if virtual else waves


@contextmanager
def _held(folder: Path) -> Iterator[None]:
    """Keep others from a folder: each would save its own trials alone.

    Raises:
        UserError: another experiment holds it.
    """
    folder.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        # Not every file system of a network locks folders.
        with suppress(OSError):
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise UserError(
                    f"{folder}: another experiment writes its results there; name another --out"
                ) from None
        yield
    finally:
        os.close(descriptor)


def _begun(options: Options, planned: list[dict[str, Any]]) -> dict[str, Any]:
    """The record to continue, or a new one; trials that failed are left out, to be tried again."""
    path = options.out / KEPT
    conditions = {
        "experiment": options.name, "quick": options.quick, "version": rtagent.__version__,
        "code": git_state(CHECKOUT, *CODE),
    }
    fresh = {
        **conditions, "commands": [options.command], "machine": machine(),
        "began": _now(), "ended": None, "trials": [],
    }
    # Else a folder that cannot be written to is noticed after the first trial.
    TemporaryFile(dir=options.out).close()
    if options.anew:
        # Else what is interrupted before its first trial ends would go on with the old ones, and
        # what is interrupted later would leave their tables and picture beside the new trials.
        for name in (KEPT, *TABLES, _picture(options)):
            (options.out / name).unlink(missing_ok=True)
    if not path.exists():
        return fresh
    try:
        record: Any = json.loads(path.read_text())
    except ValueError as error:
        raise UserError(f"{path} is not readable ({error}); begin anew with --anew") from None
    if not isinstance(record, dict) or "experiment" not in record:
        raise UserError(f"{path} is of no experiment; name another --out")
    wanted = {identity(trial) for trial in planned}
    record["trials"] = [
        trial for trial in record["trials"]
        if "failed" not in trial or identity(trial) not in wanted
    ]
    left = wanted - {identity(each) for each in record["trials"]}
    differs = [name for name, value in conditions.items() if record.get(name) != value]
    if differs and (left or differs[0] == "experiment"):
        name = differs[0]
        raise UserError(
            f"{path} holds trials made with {name} {record.get(name)}, not {conditions[name]}: "
            "go on with that, name another --out, or begin anew with --anew"
        )
    record["commands"] = list(dict.fromkeys([*record["commands"], options.command]))
    if left:
        # The trials that are left may run on another machine, or on a busier one.
        record["machines"] = [*record.get("machines", [record["machine"]]), fresh["machine"]]
    return record


def _present(experiment: Experiment, options: Options, record: Mapping[str, Any]) -> None:
    """Write the tables and the picture."""
    from matplotlib.figure import Figure

    results = Results(record["trials"])
    tables = results.table(), results.intervals(), results.curves()
    for name, rows in zip(TABLES, tables, strict=True):
        if name == "curves.csv" and not rows:
            continue
        with (options.out / name).open("w", newline="") as file:
            writer = csv.DictWriter(file, list(dict.fromkeys(key for row in rows for key in row)))
            writer.writeheader()
            writer.writerows(rows)
    figure = Figure(figsize=experiment.size, layout="constrained")
    experiment.draw(results, figure)
    lacks = ["quick: fewer and shorter trials"] if record["quick"] else []
    lacks += [f"{len(results.failed)} trials failed"] if results.failed else []
    if lacks:
        # The layout makes room for it, as it does not for other texts.
        figure.supxlabel("; ".join(lacks), x=0.01, ha="left", color="red", fontsize=8)
    figure.savefig(options.out / _picture(options), dpi=100, metadata={"Software": None})


def _picture(options: Options) -> str:
    return f"{options.name}.png"


def machine() -> dict[str, Any]:
    """The machine of the trials, what computes there, and its load when they began."""
    named = [part for part in processor_name().split("; ") if part.startswith("model name")]
    return {
        "processor": named[0].partition(": ")[2] if named else platform.machine(),
        "cores": _cores(), "kernel": platform.release(), "python": platform.python_version(),
        "torch": metadata.version("torch"),
        "load": [round(each, 2) for each in os.getloadavg()],
    }


def _cores() -> int:
    return len(os.sched_getaffinity(0))


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
