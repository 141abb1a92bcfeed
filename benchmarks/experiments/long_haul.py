"""Training loss and priorities, replay at the edge against replay at the learner.

The comparison of S. Morishima and H. Matsutani, doi:10.1109/ACCESS.2024.3402835, Sec. V-C and Figs.
7 to 14, in small: a Breakout of 10 x 10 cells for Atari's, a batch of 32 for 512, a replay of 4,096
for 65,536 (512 for 8,192), both 128 or 16 batches as in the paper, so with the same ratios, alpha =
1.52 with 8 actors, n-step 3, dueling Double DQN, weights every 16 batches. L_t is the loss of the
batches; p_t and p_s are mean absolute errors of what was sent and of what was learned from. There
is no clock.

    edge      Algorithms 4 and 5: the replay is a window at the edge, samples travel
    whole     Algorithm 2: the replay at the learner is replaced at once, as often as all of it has
              been consumed (the paper's baseline)
    learner   the replay at the learner is a window, too: every tick travels as it happens
              (`cluster.replay = "learner"`; Sec. VI-A calls it an alternative)

In these three a transition's first priority is the error that it has when it arrives, as in the
paper's Algorithm 1. In rtagent it is the largest so far (Schaul et al., 2016), so that everything
is learned from once before anything is preferred: `edge, largest first`. The paper finds that the
edge's priority is 26.1 times its baseline's in the first epoch, 3.92 times in the last half, and
its loss 0.26 times.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import torch

from benchmarks.experiment import Experiment
from benchmarks.experiments.long_haul_trial import BATCHES, Setup, Trial
from benchmarks.results import Results, half_interval
from rtagent.clock import Clock, MonotonicClock

STANDARD = Setup("edge", 8, 4096, 16, 32, BATCHES, 0)
SMALL, SMALL_EVERY = 512, 16
PROGRESS_EVERY_S = 60.0
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
BOTH = {"edge": "black", "whole": "blue"}
GROUPS = {
    "Figs. 7, 8: three architectures": {
        **BOTH, "learner": "green", "edge, largest first": "red",
    },
    "Figs. 11, 12: actors": {**BOTH, "edge, 1 actor": "darkgrey", "whole, 1 actor": "skyblue"},
    "Figs. 13, 14: size of the replay": {
        **BOTH, "edge, replay 512": "darkgrey", "whole, replay 512": "skyblue",
    },
}
"""The paper's pairs of figures: what each shows, and in which colour."""
IN_THE_PAPER = {"edge": "edge (proposed)", "whole": "whole (baseline)"}


def trials(quick: bool) -> list[dict[str, Any]]:
    """The three architectures, then the variants."""
    return [
        {"time": "virtual", "variant": name, "epochs": 4 if quick else STANDARD.epochs}
        for name in MAIN | OTHERS
    ]


def run(time: str, variant: str, epochs: int, seed: int) -> dict[str, Any]:
    """What `figures_of` tells of a variant."""
    return figures_of((MAIN | OTHERS)[variant]._replace(seed=seed, epochs=epochs), variant)


def figures_of(setup: Setup, label: str) -> dict[str, Any]:
    """Means of the first epoch and of the last half of all; curves over epochs and batches.

    Args:
        setup: of the trial.
        label: begins its lines of progress.
    """
    torch.set_num_threads(1)
    told = progress(f"{label}, seed {setup.seed}", setup.epochs, MonotonicClock())
    course = Trial(setup).run(told)
    late = setup.epochs // 2
    ended = course.episode_return[late:]
    return {
        "alpha": course.alpha,
        "L_t, last half": float(course.loss[late:].mean()),
        "p_t, first epoch": float(course.transferred[0]),
        "p_t, last half": float(course.transferred[late:].mean()),
        "p_s, first epoch": float(course.sampled[0].mean()),
        "p_s, last half": float(course.sampled[late:].mean()),
        "return, last half": float(np.nanmean(ended)) if np.isfinite(ended).any() else None,
        "L_t": course.loss.mean(axis=1).tolist(),
        "p_t": course.transferred.tolist(),
        "p_s": course.sampled.mean(axis=1).tolist(),
        "L_t within": (course.loss / course.loss.mean(axis=1)[:, None]).mean(axis=0).tolist(),
        "p_s within": (course.sampled / course.sampled.mean(axis=1)[:, None]).mean(axis=0).tolist(),
    }


def progress(label: str, epochs: int, clock: Clock) -> Callable[[int], None]:
    """What prints, at most once a minute, how many epochs have ended."""
    said = clock.now()

    def ended(count: int) -> None:
        nonlocal said
        if clock.now() >= said + PROGRESS_EVERY_S:
            said = clock.now()
            print(f"{label}: {count} of {epochs} epochs", file=sys.stderr, flush=True)

    return ended


def ratios(results: Results, baseline: str) -> dict[str, float]:
    """The paper's three figures: edge over baseline, means over the seeds."""
    def ratio(figure: str) -> float:
        edge, other = (results.where(variant=name).point(figure) for name in ("edge", baseline))
        return edge.mean / other.mean if edge and other else float("nan")

    named = ("p_t, first epoch", "p_t, last half", "L_t, last half")
    return {name: ratio(figure) for name, figure in zip(PAPER, named, strict=True)}


def draw(results: Results, figure: Any) -> None:
    """The paper's Figs. 7 to 14, two by two."""
    draw_figures(results, figure, GROUPS, "")


def draw_figures(
    results: Results, figure: Any, groups: Mapping[str, Mapping[str, str]], world: str
) -> None:
    """The paper's Figs. 7 to 14, two by two, with its axes.

    Args:
        results: of one world.
        figure: of Matplotlib, or a part of one.
        groups: as `GROUPS`.
        world: its name, for the heading.
    """
    axes = figure.subplots(2, 1 + len(groups))
    places = [0, *range(2, 1 + len(groups))]  # The second is of what happens within an epoch.
    for place, (title, colours) in zip(places, groups.items(), strict=True):
        for name, colour in colours.items():
            label = IN_THE_PAPER.get(name, name)
            _line(axes[0, place], results, name, "L_t", color=colour, label=label)
            _line(axes[1, place], results, name, "p_t", color=colour)
            if not name.startswith("edge"):
                _line(axes[1, place], results, name, "p_s", color=colour, linestyle="--")
        for style, label in (("-", "p_t (edge: = p_s)"), ("--", "p_s")):
            axes[1, place].plot([], [], color="grey", linestyle=style, label=label)
        axes[0, place].set(title=title, xlabel="epoch", ylabel="training loss L_t")
        axes[1, place].set(xlabel="epoch", ylabel="priority (mean absolute error)")
        for each in axes[:, place]:
            each.set_yscale("log")
            each.xaxis.get_major_locator().set_params(integer=True)
    first = next(iter(groups.values()))
    for row, (within, label) in enumerate((("L_t within", "L_t"), ("p_s within", "p_s"))):
        for name in MAIN:
            each = _curves(results, name, within)
            if len(each):
                how = {"color": first[name], "linewidth": 0.8, "label": name}
                axes[row, 1].plot(each.mean(axis=0), **how)
        axes[row, 1].set(xlabel="batch of the epoch", ylabel=f"{label} over its mean")
    axes[0, 1].set_title("Figs. 9, 10: within an epoch")
    for each in axes.flat:
        if each.lines:
            each.legend(fontsize=6 if len(each.lines) > 6 else 7, framealpha=0.6)
        each.grid(alpha=0.3)
    baselines = [name for name in ("whole", "learner") if name in first]
    figure.suptitle("\n".join(_headings(results, world, baselines)), fontsize=9)


def _headings(results: Results, world: str, baselines: list[str]) -> Iterator[str]:
    """What was run, and the paper's figures beside ours."""
    seeds = len({trial["seed"] for trial in results.trials if "figures" in trial})
    told = ", ".join(
        f"{epochs} epochs, last half: from {epochs // 2 + 1} on"
        for epochs in results.values("epochs")
    )
    yield f"{world}{': ' if world else ''}{told}; seeds: {seeds}"
    found = {"the paper's baseline, in the paper (100 epochs)": PAPER} | {
        name: ratios(results, name) for name in baselines
    }
    for name, each in found.items():
        told = ", ".join(
            f"{what} {'unknown' if math.isnan(value) else f'{value:.2f}'}"
            for what, value in each.items()
        )
        yield f"edge over {name}: {told}"


def _curves(results: Results, variant: str, name: str) -> Any:
    return np.array([
        trial["figures"][name] for trial in results.where(variant=variant).trials
        if "figures" in trial
    ], np.float64)


def _line(axes: Any, results: Results, variant: str, name: str, **how: str) -> None:
    """Mean over trials, with its 95 % interval as a band."""
    each = _curves(results, variant, name)
    if len(each):
        mean, half = each.mean(axis=0), half_interval(each)
        epochs = np.arange(1, len(mean) + 1)
        axes.plot(epochs, mean, marker=".", **how)
        low = np.maximum(mean - half, mean / 10)
        axes.fill_between(epochs, low, mean + half, color=how["color"], alpha=0.08)


EXPERIMENT = Experiment(trials, run, draw, size=(17, 7.5), seeds=tuple(range(10)))
