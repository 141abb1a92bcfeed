"""A tiny LeRobot policy drives a MuJoCo arm at 30 Hz: inaction, delay, distance to the target.

An ACT policy imitates, for half a minute, a controller that pulls the fingertip of Gymnasium's
Reacher to its target. Then it acts live, in chunks of 8 actions, loaded as any pretrained policy.
Everything is counted from the tick ledger. Exit code 1 if a tick had no action of the policy.

Needs: pip install 'rtagent[lerobot]' mujoco

    rtagent bench arm [--quick] [--json] [--picture FILE]
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import torch

from benchmarks.command import command_line, new_picture
from benchmarks.runs import acting_run, rows_of
from rtagent.cli.output import plain_table, print_json, stdout
from rtagent.staggering.arbiter import Source

ENVIRONMENT, RATE_HZ, CHUNK = "Reacher-v5", 30.0, 8
LENGTHS = 0.1, 0.11
"""Of the two links, in metres."""
EPISODES, STEPS = 80, 50
STIFFNESS, DAMPING = 48.0, 0.12
BATCH, LEARNING_RATE = 64, 1e-3
SETTLE_S, LIMIT_S = 2.0, 120.0


def pull(seen: Any) -> Any:
    """Torques, (2,), that pull the fingertip to the target (Jacobian transpose control)."""
    cos1, cos2, sin1, sin2 = seen[:4]
    cos12, sin12 = cos1 * cos2 - sin1 * sin2, sin1 * cos2 + cos1 * sin2
    first, second = LENGTHS
    jacobian = np.array([
        [-first * sin1 - second * sin12, -second * sin12],
        [first * cos1 + second * cos12, second * cos12],
    ])
    torques = -STIFFNESS * jacobian.T @ seen[8:10] - DAMPING * seen[6:8]
    return np.clip(torques, -1.0, 1.0).astype(np.float32)


def demonstrations() -> tuple[torch.Tensor, torch.Tensor]:
    """Observations, (n, 10), and the chunk of actions from each on, (n, CHUNK, 2)."""
    world, rng = gymnasium.make(ENVIRONMENT), np.random.default_rng(0)
    seen, chunks = [], []
    for episode in range(EPISODES):
        observation, _ = world.reset(seed=episode)
        observations, actions = [], []
        for _ in range(STEPS):
            action = pull(observation)
            observations.append(observation)
            actions.append(action)
            # Noise, so that the policy learns to come back.
            noisy = np.clip(action + rng.normal(0.0, 0.3, 2), -1.0, 1.0)
            observation, *_ = world.step(noisy)
        for at in range(STEPS - CHUNK):
            seen.append(observations[at])
            chunks.append(actions[at : at + CHUNK])
    world.close()
    return (torch.from_numpy(np.array(seen, np.float32)),
            torch.from_numpy(np.array(chunks, np.float32)))


def imitate(updates: int) -> tuple[Any, float]:
    """A policy that has learned from the controller, and the mean loss of its last 50 updates."""
    torch.manual_seed(0)
    from benchmarks.acting import tiny_lerobot

    # Layers this small gain nothing from a second thread, and lose much on a busy machine.
    torch.set_num_threads(1)
    seen, chunks = demonstrations()
    policy = tiny_lerobot.act(seen.shape[1], chunks.shape[2], CHUNK).train()
    optimizer = torch.optim.AdamW(policy.parameters(), LEARNING_RATE)
    losses = []
    for _ in range(updates):
        chosen = torch.randint(len(seen), (BATCH,))
        loss, _ = policy.forward({
            "observation.state": seen[chosen, : tiny_lerobot.STATE],
            "observation.environment_state": seen[chosen, tiny_lerobot.STATE :],
            "action": chunks[chosen], "action_is_pad": torch.zeros(BATCH, CHUNK, dtype=torch.bool),
        })
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    return policy.eval(), float(np.mean(losses[-50:]))


def drive(folder: Path, processes: int, seconds: float) -> dict[str, Any]:
    """Let the policy act; figures of the ledger, with the rows and frames themselves."""
    with acting_run(
        f"env.id={ENVIRONMENT}", f"env.rate_hz={RATE_HZ}", f"policy.pretrained={folder}",
        "policy.factory=rtagent.policy.lerobot:load", "learning.processes=0",
        f"inference.processes={processes}", "run.tensorboard=false", limit_s=LIMIT_S,
    ) as runtime:
        time.sleep(SETTLE_S)
        rows = rows_of(runtime, seconds)
        frames, _, _ = runtime.world.frames.read(rows["tick"])
        latency = [each["latency_ms"]["p50"] for each in runtime.stats()["inference"]["workers"]]
    acted = rows["source"] != Source.DEFAULT
    return {
        "processes": processes, "ticks": len(rows), "inaction": float(1.0 - acted.mean()),
        "reused": float((rows["source"] == Source.REUSED).mean()),
        "delay_mean": float((rows["tick"] - rows["observed"])[acted].mean()),
        "inference_ms": float(np.mean(latency)),
        "distance_m": float(np.median(np.linalg.norm(frames[:, 8:10], axis=1))),
        "rows": rows, "frames": frames,
    }


def draw(found: dict[str, Any], path: Path) -> None:
    """Draw the fingertip's distance, the torques, and the delay, for ten seconds."""
    from matplotlib.figure import Figure

    count = round(10 * RATE_HZ)
    rows, frames = found["rows"][:count], found["frames"][:count]
    seconds = (rows["tick"] - rows["tick"][0]) / RATE_HZ
    figure = Figure(figsize=(8, 5.5), layout="constrained")
    near, torque, late = figure.subplots(3, sharex=True, height_ratios=(3, 2, 1))
    near.plot(seconds, 100 * np.linalg.norm(frames[:, 8:10], axis=1), color="tab:blue")
    for at in np.flatnonzero(np.diff(rows["episode"])):
        for axes in (near, torque, late):
            axes.axvline(seconds[at + 1], color="0.85", zorder=0)
    near.set_ylabel("fingertip to\ntarget, cm")
    near.set_title(
        f"A tiny LeRobot policy (ACT, chunks of {CHUNK}) drives Gymnasium's {ENVIRONMENT} at "
        f"{RATE_HZ:g} Hz\n{found['ticks']} ticks, {100 * found['inaction']:.2f} % without an "
        "action of the policy", fontsize=10,
    )
    for joint, name in enumerate(("shoulder", "elbow")):
        torque.step(seconds, rows["action"][:, joint], where="post", label=name)
    torque.set_ylabel("torque")
    torque.legend(loc="upper right", fontsize=8)
    acted = rows["source"] != Source.DEFAULT
    late.plot(seconds[acted], (rows["tick"] - rows["observed"])[acted], ".", markersize=3)
    late.plot(seconds[~acted], np.zeros((~acted).sum()), "x", color="tab:red")
    late.set_ylabel("delay,\nticks")
    late.set_ylim(0, None)
    late.set_xlabel("seconds; a grey line is a new target")
    figure.savefig(path, dpi=110)


def main() -> int:
    """Measure, print, draw; exit code 1 if a tick had no action of the policy."""
    parser = command_line(__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer updates, shorter runs")
    parser.add_argument("--picture", type=new_picture, metavar="FILE", help="draw ten seconds")
    args = parser.parse_args()
    try:
        from benchmarks.acting import tiny_lerobot
    except ModuleNotFoundError as error:
        parser.error(f"{error.name} is missing: pip install 'rtagent[lerobot]' mujoco")
    policy, loss = imitate(400 if args.quick else 3000)
    with tempfile.TemporaryDirectory() as folder:
        tiny_lerobot.save(policy, Path(folder))
        runs = [drive(Path(folder), count, 10.0 if args.quick else 60.0) for count in (1, 2)]
    if args.picture is not None:
        draw(runs[-1], args.picture)
    for each in runs:
        del each["rows"], each["frames"]
    kept = all(each["inaction"] == 0.0 for each in runs)
    if args.json:
        print_json({"loss": loss, "runs": runs, "kept": kept})
        return 0 if kept else 1
    names = ("processes", "ticks", "inaction", "reused", "delay_mean", "inference_ms", "distance_m")
    stdout().print(plain_table(*(name.replace("_", " ") for name in names), rows=(
        [f"{each[name]:.4g}" for name in names] for each in runs
    )))
    return 0 if kept else 1


if __name__ == "__main__":
    raise SystemExit(main())
