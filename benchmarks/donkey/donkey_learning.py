"""DonkeyCar in the embedded simulator: how far along the road it drives after learning.

For each seed the whole daemon drives on the wall clock and learns, as `examples/donkey.toml` says.
Then the policy of its last checkpoint drives greedily, and so do policies that ignore the picture:
random actions, and straight ahead at each throttle. The figure is the way along the centre line
until the car is too far from it (`max_cte`), hits something, or the time is over. The picture shows
the driven lines and the learning curves.

    rtagent bench donkey_learning [--minutes M] [--seeds S ...] [--jobs N] [--drives K]
        [--picture PATH] [--save PATH] [--set SECTION.KEY=VALUE ...] [--json]
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

import rtagent
from benchmarks.command import command_line, from_zero, new_file, new_picture
from benchmarks.experiment import outcomes
from benchmarks.learning_runs import LAST_EPISODES, learn
from rtagent.cli.jitter import measure_jitter
from rtagent.cli.output import json_text, print_json
from rtagent.config import Config
from rtagent.env.adapter import Adapter
from rtagent.env.donkey.controls import THROTTLES
from rtagent.env.donkey.scenes import SCENES
from rtagent.env.donkey.session import REPORTED_SCALE, Session
from rtagent.env.donkey.track import HALF_WIDTH, Track
from rtagent.env.making import make
from rtagent.errors import UserError
from rtagent.evaluation.process import Evaluator, Values, seed_of
from rtagent.evaluation.trained_policy import TrainedPolicy
from rtagent.storage import checkpoint
from rtagent.telemetry.learning_curve import moving_mean

EXAMPLE = Path(__file__).parents[2] / "examples" / "donkey.toml"
DRIVE_S = 60.0
"""Longest drive of any policy, in seconds."""
MARGIN = 1.5
CONNECT_TRIES = 30
PACES = ("COAST", "SLOW", "FAST")
"""Names of `THROTTLES` in the grid of actions."""

Line = NDArray[np.float64]
Rows = list[dict[str, Any]]


class Recorded(gym.Wrapper[Any, Any, Any, Any]):
    """Records where the car has been in this episode.

    Attributes:
        line: x and z of each telemetry frame, in the map's units.
        off: whether the episode ended on the grass or at the barrier, not by time.
    """

    def __init__(self, env: gym.Env[Any, Any]) -> None:
        super().__init__(env)
        self.line: list[tuple[float, float]] = []
        self.off = False

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Begin an episode with the car at the start, for which a new simulator takes a while."""
        self.line, self.off = [], False
        for _ in range(CONNECT_TRIES):  # Each lasts a second at most.
            observation, info = self.env.reset(seed=seed, options=options)
            if info["connected"] and not info["resetting"]:
                self._see(info)
                return observation, info
        raise UserError("the simulator does not put the car at the start")

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """One tick."""
        observation, reward, terminated, truncated, info = self.env.step(action)
        self._see(info)
        self.off = terminated
        return observation, reward, terminated, truncated, info

    def _see(self, info: dict[str, Any]) -> None:
        x, _, z = info["pos"]
        self.line.append((x / REPORTED_SCALE, z / REPORTED_SCALE))


def track_of(config: Config) -> Track:
    """The road that the embedded simulator will show.

    Raises:
        UserError: another simulator is configured, whose roads are not known.
    """
    kwargs = config.env.kwargs
    if config.env.id not in SCENES or kwargs.get("host") is not None:
        raise UserError("only a donkey environment in the embedded simulator has a known road")
    session = Session(seed=kwargs.get("road_seed", 0))
    session.handle({"msg_type": "load_scene", "scene_name": SCENES[config.env.id]})
    if kwargs.get("road") is not None:
        session.handle({"msg_type": "regen_road", **kwargs["road"]})
    assert session.drive is not None
    return session.drive.track


def distance_along(track: Track, line: Line) -> float:
    """How far along the road a line leads from its first point.

    Args:
        track: the road.
        line: (n, 2) x and z, in steps shorter than half the road.

    Returns:
        The furthest way reached along the centre line, in the map's units. A lap counts as the
        road's length; driving backwards or in circles adds nothing.
    """
    progress = np.array([track.place(x, z).progress for x, z in line])
    half = track.length / 2
    steps = (np.diff(progress) + half) % track.length - half
    return float(max(0.0, np.cumsum(steps).max(initial=0.0)))


def drive(config: Config, policy_of: Callable[[Adapter], Values], drives: int) -> Rows:
    """Have a policy drive, without exploration.

    Args:
        config: of the environment.
        policy_of: makes the policy for the adapter.
        drives: number of drives.

    Returns:
        For each drive: line, distance, seconds, speed along the line, return, off (the road).
    """
    track = track_of(config)
    recorded = Recorded(make(config.env))
    adapter = Adapter(recorded, config.env)
    rows = []
    try:
        evaluator = Evaluator(adapter, policy_of(adapter), lambda: True)
        for index in range(drives):
            played = evaluator.play_episode(seed_of(config.run.seed, 0, index))
            assert played is not None
            line, seconds = np.array(recorded.line), played.ticks / adapter.rate_hz
            driven = float(np.hypot(*np.diff(line, axis=0).T).sum())
            rows.append({
                "distance": distance_along(track, line),
                "seconds": seconds,
                "speed": driven / seconds,
                "return": played.total,
                "off": recorded.off,
                "line": np.round(line, 2).tolist(),
            })
    finally:
        adapter.close()
    return rows


def straight_ahead(pace: int, adapter: Adapter) -> Values:
    """A policy that steers 0 at a constant throttle, given by its number in `THROTTLES`."""
    if isinstance(adapter.action_space, gym.spaces.Box):
        answer = np.array([0.0, THROTTLES[pace]], np.float32)
    else:
        answer = np.zeros(len(adapter.action_meanings), np.float32)
        answer[adapter.action_meanings.index(PACES[pace])] = 1.0
    return lambda observation: answer


def at_random(hold_ticks: int, seed: int, adapter: Adapter) -> Values:
    """A policy of random actions, each held for `hold_ticks` ticks."""
    rng, tick = np.random.default_rng(seed), -1
    space = adapter.action_space
    answer = np.empty(0, np.float32)

    def values(observation: NDArray[Any]) -> NDArray[np.float32]:
        nonlocal tick, answer
        tick += 1
        if tick % hold_ticks == 0:
            if isinstance(space, gym.spaces.Box):
                answer = rng.uniform(space.low, space.high).astype(np.float32)
            else:
                answer = rng.random(int(space.n), np.float32)
        return answer

    return values


def baselines(config: Config, drives: int) -> dict[str, Rows]:
    """Drives of the policies that ignore the picture, by name."""
    hold, seed = config.policy.exploration_hold_ticks, config.run.seed
    policies = {
        "random": partial(at_random, 1, seed),
        f"random, held {hold} ticks": partial(at_random, hold, seed),
        "straight ahead, slow": partial(straight_ahead, PACES.index("SLOW")),
        "straight ahead, fast": partial(straight_ahead, PACES.index("FAST")),
    }
    return {name: drive(config, policy, drives) for name, policy in policies.items()}


def load(overrides: list[str]) -> Config:
    """The configuration of `examples/donkey.toml`, with changes."""
    return rtagent.load_config(EXAMPLE, overrides=overrides)


def for_drives(config: Config) -> Config:
    """The same environment with episodes of at most `DRIVE_S` seconds."""
    kwargs = {**config.env.kwargs, "max_seconds": DRIVE_S}
    return config.model_copy(update={"env": config.env.model_copy(update={"kwargs": kwargs})})


def run_one(
    seed: int, minutes: float, drives: int, overrides: list[str], label: str | None
) -> dict[str, Any]:
    """Learn with one seed, then drive."""
    begun = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        config = load([*overrides, f"run.seed={seed}", f"run.state_dir={folder}"])
        run = learn(config, minutes, label)
        path = checkpoint.newest(Path(folder) / "checkpoints")
        if path is None:
            raise UserError(f"seed {seed}: no checkpoint was written; learn for longer")
        policy = TrainedPolicy(config, checkpoint.load(path), path).acting()
        rows = drive(for_drives(config), lambda adapter: policy.greedy, drives)
    return {**run, "drives": rows, "took_s": time.monotonic() - begun}


def distances(rows: Rows) -> list[float]:
    """The distance of each drive."""
    return [row["distance"] for row in rows]


def verdict(learned: list[list[float]], others: list[list[float]]) -> tuple[float, bool]:
    """Whether every seed drives clearly further than the best policy that ignores the picture.

    Args:
        learned: distances of each seed's drives.
        others: distances of each other policy's drives.

    Returns:
        The limit, and whether the mean of every seed is above it.
    """
    bar = MARGIN * max(float(np.mean(each)) for each in others)
    return bar, all(float(np.mean(each)) > bar for each in learned)


def draw(track: Track, runs: Rows, others: dict[str, Rows], path: Path) -> None:
    """Draw the road with the driven lines at the left, the learning curves at the right."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(13, 6))
    road, curves = figure.subplots(1, 2)
    draw_road(road, track)
    styles = dict(zip(others, (":", "-.", "--", (0, (1, 4))), strict=True))
    for name, rows in others.items():
        best = max(rows, key=lambda row: row["distance"])
        line = np.array(best["line"])
        road.plot(*line.T, color="black", linestyle=styles[name], linewidth=1.5, label=name)
        road.plot(*line[-1], "x", color="black")
        mean = float(np.mean([row["return"] for row in rows]))
        curves.axhline(mean, color="grey", linestyle=styles[name], label=name)
    for run in runs:
        middle = sorted(run["drives"], key=lambda row: row["distance"])[len(run["drives"]) // 2]
        line = np.array(middle["line"])
        (drawn,) = road.plot(*line.T, linewidth=1.5, label=f"learned, seed {run['seed']}")
        if middle["off"]:
            road.plot(*line[-1], "x", color=drawn.get_color())
        minutes = np.array([second for second, _ in run["episodes"]]) / 60.0
        returns = np.array([value for _, value in run["episodes"]])
        smooth = moving_mean(returns, LAST_EPISODES)
        curves.plot(minutes, smooth, color=drawn.get_color(), label=f"seed {run['seed']}")
    road.set_aspect("equal")
    road.set_title("Driven lines (median drive of each seed, best of the others)")
    road.legend(fontsize=8)
    curves.set(xlabel="minutes of wall-clock time", title="Learning, exploration included")
    curves.set_ylabel(f"mean return of {LAST_EPISODES} episodes")
    curves.legend(fontsize=8)
    curves.grid(alpha=0.3)
    figure.tight_layout()
    figure.savefig(path, dpi=120)


def draw_road(axes: Any, track: Track) -> None:
    """Draw edges, centre line and start."""
    points = np.concatenate([track.points, track.points[:1]])
    ways = np.gradient(points, axis=0)
    across = np.stack([ways[:, 1], -ways[:, 0]], axis=1) / np.hypot(*ways.T)[:, None]
    for side in (-HALF_WIDTH, HALF_WIDTH):
        axes.plot(*(points + side * across).T, color="grey", linewidth=1.0)
    axes.plot(*points.T, color="orange", linewidth=0.8, linestyle=(0, (6, 6)))
    axes.plot(*points[0], "^", color="green", markersize=9)


def describe(name: str, rows: Rows, track: Track) -> str:
    """A policy's drives on one line."""
    far = distances(rows)
    return (
        f"{name:30}  distance {np.mean(far):7.1f} ({np.mean(far) / track.length:5.2f} laps; "
        f"{min(far):.1f} to {max(far):.1f})  {np.mean([row['seconds'] for row in rows]):5.1f} s  "
        f"speed {np.mean([row['speed'] for row in rows]):5.2f}/s  "
        f"return {np.mean([row['return'] for row in rows]):7.2f}  "
        f"off the road {sum(row['off'] for row in rows)} of {len(rows)}"
    )


def main() -> int:
    """Run all seeds; exit code 1 if one does not clearly drive further than the others."""
    parser = command_line(__doc__)
    parser.add_argument("--minutes", type=float, default=20.0)
    parser.add_argument("--seeds", type=from_zero, nargs="+", default=[0, 1, 2])
    parser.add_argument("--jobs", type=int, default=1, help="seeds side by side")
    parser.add_argument("--drives", type=int, default=5, help="of each policy")
    parser.add_argument("--picture", type=new_picture)
    parser.add_argument("--save", type=new_file, help="every episode and every line, as JSON")
    parser.add_argument("--set", action="append", default=[], dest="overrides")
    args = parser.parse_args()
    # Where the JSON is wanted, stdout is for that alone.
    say = partial(print, file=sys.stderr if args.json else sys.stdout, flush=True)
    say(f"machine floor (bare loop): {measure_jitter(3.0)}")
    config = for_drives(load(args.overrides))
    track = track_of(config)
    others = baselines(config, args.drives)
    for name, rows in others.items():
        say(describe(name, rows, track))
    found: dict[str, Any] = {"baselines": others, "runs": [], "failed": {}}
    runs: Rows = found["runs"]
    calls = {
        f"seed {seed}": partial(
            run_one, seed, args.minutes, args.drives, args.overrides,
            f"seed {seed}: " if args.jobs > 1 else None,
        )
        for seed in args.seeds
    }
    for name, outcome in outcomes(calls, args.jobs):
        if isinstance(outcome, Exception):
            found["failed"][name] = f"{type(outcome).__name__}: {outcome}"
            print(f"{name}: failed: {found['failed'][name]}", file=sys.stderr)
        else:
            runs.append(outcome)
            runs.sort(key=lambda each: each["seed"])
            say(told(outcome, track))
        if args.save:
            args.save.write_text(json_text(found))
        if args.picture:
            draw(track, runs, others, args.picture)
    bar, passed = verdict(
        [distances(run["drives"]) for run in runs], [distances(rows) for rows in others.values()]
    )
    passed = passed and not found["failed"]
    say(f"bar {bar:.1f}: {'ok' if passed else 'MISSED'}")
    if args.json:
        print_json({**found, "bar": bar, "passed": passed})
    return int(not passed)


def told(run: dict[str, Any], track: Track) -> str:
    """The drives of a seed, and how it has learned, on two lines."""
    driven = describe(f"learned, seed {run['seed']}", run["drives"], track)
    return (
        f"{driven}\n    {len(run['episodes'])} episodes, {run['updates']} updates, "
        f"inaction {100 * run['inaction_fraction']:.3f} %, {run['took_s']:.0f} s"
    )


if __name__ == "__main__":
    sys.exit(main())
