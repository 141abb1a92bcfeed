"""Training loss and priorities, replay at the edge against replay at the learner.

The comparison of S. Morishima and H. Matsutani, doi:10.1109/ACCESS.2024.3402835, Sec. V-C and Figs.
7 to 14, in small: a Breakout of 10 x 10 cells for Atari's, a batch of 32 for 512, a replay of 4,096
for 65,536 (512 for 8,192), both 128 or 16 batches as in the paper, so with the same ratios, alpha =
1.52 with 8 actors, n-step 3, dueling Double DQN, weights every 16 batches. L_t is the loss of the
batches; p_t and p_s are mean absolute errors of what was sent and of what was learned from.

    edge      Algorithms 4 and 5: the replay is a window at the edge, samples travel
    whole     Algorithm 2: the replay at the learner is replaced at once, as often as all of it has
              been consumed (the paper's baseline)
    learner   the replay at the learner is a window, too: every tick travels as it happens
              (`cluster.replay = "learner"`; Sec. VI-A calls it an alternative)

In these three a transition's first priority is the error that it has when it arrives, as in the
paper's Algorithm 1. In rtagent it is the largest so far (Schaul et al., 2016), so that everything
is learned from once before anything is preferred: `edge, largest first`.

    python -m benchmarks.long_haul [--trials 10] [--others 3] [--epochs 16] [--jobs 2] [--quick]
        [--csv PATH] [--picture PATH] [--json]
"""

from __future__ import annotations

import argparse
import csv
import json
import multiprocessing
import sys
from collections.abc import Callable, Mapping
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import numpy as np
import torch
from rich.console import Console
from rich.progress import track
from rich.table import Table

from benchmarks.long_haul_trial import BATCHES, Course, Doubles, Setup, Trial

STANDARD = Setup("edge", 8, 4096, 16, 32, BATCHES, 0)
SMALL, SMALL_EVERY = 512, 16
MAIN = {
    "edge": STANDARD,
    "whole": STANDARD._replace(architecture="whole"),
    "learner": STANDARD._replace(architecture="learner"),
}
OTHERS = {
    "edge, largest first": STANDARD._replace(first="largest"),
    "edge, 1 actor": STANDARD._replace(actors=1),
    "whole, 1 actor": MAIN["whole"]._replace(actors=1),
    "edge, replay 512": STANDARD._replace(capacity=SMALL),
    "whole, replay 512": MAIN["whole"]._replace(capacity=SMALL, transfer_every=SMALL_EVERY),
}
PAPER = {"priority, first epoch": 26.1, "priority, last half": 3.92, "loss, last half": 0.26}

Courses = Mapping[str, list[Course]]


def course(setup: Setup) -> Course:
    """One trial, in a process of its own."""
    torch.set_num_threads(1)
    return Trial(setup).run()


def measure(trials: int, others: int, epochs: int, jobs: int) -> dict[str, list[Course]]:
    """All trials, by the names of `MAIN` and `OTHERS`."""
    wanted = [
        (name, setup._replace(seed=seed, epochs=epochs))
        for group, count in ((MAIN, trials), (OTHERS, others))
        for seed in range(count) for name, setup in group.items()
    ]
    found: dict[str, list[Course]] = {name: [] for name, _ in wanted}
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(jobs, spawn) as pool:
        results = pool.map(course, [setup for _, setup in wanted])
        shown = track(
            results, "trials", total=len(wanted), console=Console(stderr=True), transient=True
        )
        for (name, _), each in zip(wanted, shown, strict=True):
            found[name].append(each)
    return found


def figures(courses: list[Course]) -> dict[str, float]:
    """Means over trials: of the first epoch, and of the last half of all."""
    loss = np.stack([each.loss.mean(axis=1) for each in courses])
    sampled = np.stack([each.sampled.mean(axis=1) for each in courses])
    sent = np.stack([each.transferred for each in courses])
    late = loss.shape[1] // 2
    returned = np.stack([each.episode_return for each in courses])[:, late:]
    return {
        "alpha": float(np.mean([each.alpha for each in courses])),
        "L_t, last half": float(loss[:, late:].mean()),
        "p_t, first epoch": float(sent[:, 0].mean()),
        "p_t, last half": float(sent[:, late:].mean()),
        "p_s, first epoch": float(sampled[:, 0].mean()),
        "p_s, last half": float(sampled[:, late:].mean()),
        "return, last half": float(np.nanmean(returned)),
    }


def ratios(edge: Mapping[str, float], baseline: Mapping[str, float]) -> dict[str, float]:
    """The paper's three figures: edge over baseline."""
    return {
        "priority, first epoch": edge["p_t, first epoch"] / baseline["p_t, first epoch"],
        "priority, last half": edge["p_t, last half"] / baseline["p_t, last half"],
        "loss, last half": edge["L_t, last half"] / baseline["L_t, last half"],
    }


def draw(found: Courses, path: Path) -> None:
    """The paper's Figs. 7 to 14, two by two."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    def loss(each: Course) -> Doubles:
        return each.loss.mean(axis=1)

    def sampled(each: Course) -> Doubles:
        return each.sampled.mean(axis=1)

    def sent(each: Course) -> Doubles:
        return each.transferred

    figure, axes = pyplot.subplots(2, 4, figsize=(17, 7.5))
    plain = [name for name in (*MAIN, "edge, largest first") if name in found]
    groups = (
        ("Figs. 7, 8: three architectures", plain),
        ("Figs. 11, 12: actors", ["edge", "whole", "edge, 1 actor", "whole, 1 actor"]),
        ("Figs. 13, 14: size of the replay",
         ["edge", "whole", "edge, replay 512", "whole, replay 512"]),
    )
    for place, (title, names) in zip((0, 2, 3), groups, strict=True):
        for name, color in zip([each for each in names if each in found], "kbgrm", strict=False):
            _line(axes[0, place], found[name], loss, f"{color}-", name)
            _line(axes[1, place], found[name], sent, f"{color}-", f"p_t, {name}")
            if not name.startswith("edge"):
                _line(axes[1, place], found[name], sampled, f"{color}--", f"p_s, {name}")
        axes[0, place].set(title=title, ylabel="L_t", yscale="log")
        axes[1, place].set(xlabel="epoch", ylabel="p_t, p_s (mean absolute error)", yscale="log")
    for name, color in zip(MAIN, "kbg", strict=True):
        for row, values in ((0, "loss"), (1, "sampled")):
            each = np.stack([getattr(trial, values) for trial in found[name]])
            within = (each / each.mean(axis=2, keepdims=True)).mean(axis=(0, 1))
            axes[row, 1].plot(within, f"{color}-", linewidth=0.8, label=name)
    axes[0, 1].set(title="Figs. 9, 10: within an epoch", ylabel="L_t over its mean")
    axes[1, 1].set(xlabel="batch of the epoch", ylabel="p_s over its mean")
    for each in axes.flat:
        each.legend(fontsize=7)
        each.grid(alpha=0.3)
    figure.tight_layout()
    figure.savefig(path, dpi=80)
    pyplot.close(figure)


def _line(
    axes: object, courses: list[Course], values: Callable[[Course], Doubles], style: str,
    label: str,
) -> None:
    """Mean over trials, with their standard deviation as a band."""
    each = np.stack([values(course) for course in courses])
    mean, spread, epochs = each.mean(axis=0), each.std(axis=0), np.arange(1, each.shape[1] + 1)
    axes.plot(epochs, mean, style, label=label)  # type: ignore[attr-defined]
    low = np.maximum(mean - spread, mean / 10)
    axes.fill_between(epochs, low, mean + spread, color=style[0], alpha=0.08)  # type: ignore[attr-defined]


def write(found: Courses, path: Path) -> None:
    """A line for every epoch of every trial."""
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(("variant", "trial", "epoch", "L_t", "p_t", "p_s", "return"))
        for name, courses in found.items():
            for trial, each in enumerate(courses):
                columns = (
                    each.loss.mean(axis=1), each.transferred, each.sampled.mean(axis=1),
                    each.episode_return,
                )
                for epoch, row in enumerate(zip(*columns, strict=True), start=1):
                    writer.writerow((name, trial, epoch, *(f"{value:.5g}" for value in row)))


def show(found: Courses) -> None:
    """Figures of every variant, and ratios beside the paper's."""
    console = Console(width=140)
    means = {name: figures(courses) for name, courses in found.items()}
    table = Table("", "trials", *next(iter(means.values())))
    for name, each in means.items():
        table.add_row(name, str(len(found[name])), *(f"{value:.3g}" for value in each.values()))
    console.print(table)
    table = Table("edge over", *PAPER)
    table.add_row("the paper's baseline, in the paper", *(f"{each:g}" for each in PAPER.values()))
    for name in ("whole", "learner"):
        each = ratios(means["edge"], means[name])
        table.add_row(name, *(f"{value:.2f}" for value in each.values()))
    console.print(table)


def main() -> int:
    """Parse the command line, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--trials", type=int, default=10)
    parser.add_argument("--others", type=int, default=3, help="trials of the variants")
    parser.add_argument("--epochs", type=int, default=STANDARD.epochs)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--quick", action="store_true", help="2 trials, 1 of variants, 4 epochs")
    parser.add_argument("--csv", type=Path)
    parser.add_argument("--picture", type=Path)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    counts = (2, 1, 4) if args.quick else (args.trials, args.others, args.epochs)
    found = measure(*counts, args.jobs)
    if args.csv:
        write(found, args.csv)
    if args.picture:
        draw(found, args.picture)
    if args.json:
        print(json.dumps({name: figures(courses) for name, courses in found.items()}))
    else:
        show(found)
    return 0


if __name__ == "__main__":
    sys.exit(main())
