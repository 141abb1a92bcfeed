"""`rtagent status`: the running daemon's processes and its main figures."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import Any

from rtagent.cli.daemon import Daemon, add_state_dir_option, find_daemon
from rtagent.cli.options import add_json_option
from rtagent.cli.output import (
    UNKNOWN,
    known,
    known_reward,
    milliseconds,
    percent,
    plain_table,
    report,
    stdout,
)
from rtagent.logs.printable import printable
from rtagent.telemetry.cluster import in_a_line
from rtagent.telemetry.figures.declaration import from_json
from rtagent.telemetry.figures.document import Answer
from rtagent.telemetry.figures.learning import R3
from rtagent.telemetry.remote import in_a_line as remote_line

QUESTIONS = {
    "acting": "in time?", "lateness": "cost of late", "learning": "learning?", "health": "broken?",
}
"""The question that each verdict of the daemon answers."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_state_dir_option(parser)
    add_json_option(parser)


def run(args: argparse.Namespace) -> int:
    """Print how the daemon is."""
    report(args, collect(find_daemon(args.state_dir)), _print)
    return 0


def collect(daemon: Daemon) -> dict[str, Any]:
    """What the daemon says of itself.

    Returns:
        Its address, status and figures; the injected latency, None if there is none; whether the
        number of inference processes is automatic.
    """
    inference = daemon.get("/v1/config").get("inference", {})
    return {
        "url": daemon.url, "status": daemon.get("/v1/status"), "stats": daemon.get("/v1/stats"),
        "injected_latency_ms": inference.get("injected_latency_ms") or None,
        "automatic_processes": inference.get("processes") == "auto",
    }


def _print(found: Mapping[str, Any]) -> None:
    console, status = stdout(), found["status"]
    stats = from_json(Answer, found["stats"])
    rows = _figure_rows(stats, found["injected_latency_ms"], found["automatic_processes"])
    roles = status.get("roles", [])
    processes = (
        (_name(role), str(role.get("pid") or "-"),
         str(role.get("busy") or role.get("state", UNKNOWN)), str(role.get("restarts", 0)))
        for role in roles
    )
    console.print(
        f"run {status.get('run_id', UNKNOWN)}: {status.get('state', UNKNOWN)} at {found['url']}\n",
        plain_table("", "", rows=((title, printable(text)) for title, text in rows)), "",
        plain_table("process", "pid", "state", "restarts", rows=processes),
    )
    for role in roles:
        if role.get("last_error"):
            console.print(f"\nlast error of {_name(role)}:")
            for line in str(role["last_error"]).rstrip().splitlines():
                console.print(printable(line))


def _figure_rows(
    stats: Answer, injected_ms: float | None, automatic: bool
) -> list[tuple[str, str]]:
    """Title and text of the verdicts and of each main figure; a missing figure is called unknown.

    `injected_ms` is the mean of the injected latency; `automatic` says that the number of inference
    processes is.
    """
    clock, actions, inference = stats.clock, stats.actions, stats.inference
    learning, replay, episodes = stats.learning, stats.replay, stats.episodes
    verdicts = [(title, getattr(stats.verdicts, name)) for name, title in QUESTIONS.items()]
    processes = f"auto ({known(inference.processes)})" if automatic else known(inference.processes)
    latency = milliseconds(inference.estimate_ms, 2)
    if injected_ms:
        distribution = inference.injected_latency_distribution
        latency += f" (injected latency: padded to {injected_ms:g} ms, {distribution})"
    return [
        *((title, f"{each.headline}: {each.detail}") for title, each in verdicts if each.level),
        ("up", f"{known(clock.uptime_s, '{:.0f} s')}, {known(clock.ticks, '{} ticks')}"),
        ("rate", f"{known(clock.rate_hz, '{:.4f} Hz')} of "
         f"{known(clock.target_rate_hz, '{:.4f} Hz')}, slips: {known(clock.slips)}"),
        ("inaction", f"{percent(actions.inaction_fraction_60s)} of the last 60 s, "
         f"{percent(actions.inaction_fraction)} of the run"),
        ("delay", f"{known(actions.delay_ticks.mean, '{:.2f} ticks')}, "
         f"p99 {known(actions.delay_ticks.p99, '{:.0f} ticks')}"
         + (f"; {percent(actions.from_chunk)} of ticks by later actions of chunks"
            if actions.from_chunk else "")),
        ("inference", f"{known(inference.ready)} of {processes} processes run, "
         f"{known(inference.algorithm)}; recommended: {known(inference.recommended_processes)}"),
        ("inference time", latency),
        *([] if inference.remote is None else [("policy server", remote_line(inference.remote))]),
        ("learning", f"{known(learning.updates, '{} updates')}, "
         f"{known(learning.updates_per_s, '{:.1f} per second')}, "
         f"epsilon {known(learning.epsilon, '{:.3f}')}"),
        ("replay", f"{known(replay.size)} of {known(replay.capacity, '{} ticks')}, "
         f"{_bytes(replay.bytes)}"),
        ("learners", f"{known(learning.processes)}, {known(learning.order)}, "
         f"staleness {known(learning.staleness.mean, '{:.2f} updates')}, "
         f"batch size {known(learning.batch_size)}{' (paused)' if learning.paused else ''}"),
        ("episodes", f"{known(episodes.count)}, "
         f"last return {known_reward(episodes.last_return)}, "
         f"mean of the last 100: {known_reward(episodes.mean_return_100)}"),
        *_deadline_rows(stats.r3),
        *([] if stats.cluster is None else [("cluster", in_a_line(stats.cluster))]),
    ]


def _deadline_rows(r3: R3) -> list[tuple[str, str]]:
    """The horizon if the deadline controller is on, and memory if it has a budget."""
    rows = []
    if r3.mode not in (None, "off"):
        episodes = r3.episode_deadlines
        rows += [
            ("horizon", f"{r3.mode}: {known(r3.elapsed_s, '{:.1f} s')} of "
             f"{known(r3.deadline_s, '{:.12g} s')} used, {known(r3.consumed, '{} samples')} of "
             f"{known(r3.data_budget)}"),
            ("deadlines", f"{known(r3.horizons.met, '{} met')}, "
             f"{known(r3.horizons.missed, '{} missed')}; of episodes: "
             f"{known(episodes.met, '{} met')}, {known(episodes.missed, '{} missed')}"),
        ]
    if r3.memory_budget_bytes is not None:
        rows.append(("memory", f"{_bytes(r3.used_bytes)} used, "
                     f"budget {_bytes(r3.memory_budget_bytes)}"))
    return rows


def _bytes(value: float | None) -> str:
    if value is None:
        return UNKNOWN
    return f"{value / 2**20:.0f} MiB" if value >= 2**20 else f"{value / 2**10:.0f} KiB"


def _name(role: Mapping[str, Any]) -> str:
    name = str(role.get("name", UNKNOWN))
    several = role.get("role", name) in ("inference", "learner") and " " not in name
    return f"{name} {role.get('index', 0)}" if several else name
