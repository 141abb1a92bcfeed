"""`rtagent status`: the running daemon's processes and its main figures."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from typing import Any

from rich.console import Console

from rtagent.cli.daemon import Daemon, add_state_dir_option, find_daemon
from rtagent.cli.options import UNKNOWN, add_json_option, plain_table, print_json, stdout
from rtagent.logs.printable import printable


def _mebibytes(value: float) -> str:
    return f"{value / 2**20:.0f} MiB"


_FIGURES: tuple[Any, ...] = (
    ("up", "{}, {}", ("clock.uptime_s", "{:.0f} s"), ("clock.ticks", "{} ticks")),
    (
        "rate",
        "{} of {}, slips: {}",
        ("clock.rate_hz", "{:.4f} Hz"),
        ("clock.target_rate_hz", "{:.4f} Hz"),
        ("clock.slips", "{}"),
    ),
    (
        "inaction",
        "{} of the last 60 s, {} of the run",
        ("actions.inaction_fraction_60s", "{:.2%}"),
        ("actions.inaction_fraction", "{:.2%}"),
    ),
    (
        "delay",
        "{}, p99 {}",
        ("actions.delay_ticks.mean", "{:.2f} ticks"),
        ("actions.delay_ticks.p99", "{:.0f} ticks"),
    ),
    (
        "inference",
        "{} of {} processes act, {}; recommended: {}",
        ("inference.ready", "{}"),
        ("inference.processes", "{}"),
        ("inference.algorithm", "{}"),
        ("inference.recommended_processes", "{}"),
    ),
    ("inference time", "{}", ("inference.estimate_ms", "{:.2f} ms")),
    (
        "learning",
        "{}, {}, epsilon {}",
        ("learning.updates", "{} updates"),
        ("learning.updates_per_s", "{:.1f} per second"),
        ("learning.epsilon", "{:.3f}"),
    ),
    (
        "replay",
        "{} of {}, {}",
        ("replay.size", "{}"),
        ("replay.capacity", "{} ticks"),
        ("replay.bytes", _mebibytes),
    ),
    (
        "learners",
        "{}, {}, staleness {}, batch size {}",
        ("learning.processes", "{}"),
        ("learning.order", "{}"),
        ("learning.staleness.mean", "{:.2f} updates"),
        ("learning.batch_size", "{}"),
    ),
    (
        "episodes",
        "{}, last return {}, mean of the last 100: {}",
        ("episodes.count", "{}"),
        ("episodes.last_return", "{:.1f}"),
        ("episodes.mean_return_100", "{:.1f}"),
    ),
)
"""Title, sentence, and the figures of the sentence with their formats."""
_DEADLINES: tuple[Any, ...] = (
    (
        "horizon",
        "{}: {} of {} used, {} of {}",
        ("r3.mode", "{}"),
        ("r3.elapsed_s", "{:.1f} s"),
        ("r3.deadline_s", "{:g} s"),
        ("r3.consumed", "{} samples"),
        ("r3.data_budget", "{}"),
    ),
    (
        "deadlines",
        "{}, {}; of episodes: {}, {}",
        ("r3.horizons.met", "{} met"),
        ("r3.horizons.missed", "{} missed"),
        ("r3.episode_deadlines.met", "{} met"),
        ("r3.episode_deadlines.missed", "{} missed"),
    ),
)
"""The same, where the deadline controller is on."""
_MEMORY: tuple[Any, ...] = (
    (
        "memory",
        "{} used, budget {}",
        ("r3.used_bytes", _mebibytes),
        ("r3.memory_budget_bytes", _mebibytes),
    ),
)
"""The same, where there is a memory budget."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    add_state_dir_option(parser)
    add_json_option(parser)


def run(args: argparse.Namespace) -> int:
    """Print how the daemon is.

    Raises:
        UserError: no daemon answers.
    """
    daemon = find_daemon(args.state_dir)
    report = collect(daemon)
    if args.json:
        print_json(report)
    else:
        _print(stdout(), report)
    return 0


def collect(daemon: Daemon) -> dict[str, Any]:
    """Address, status, figures, injected latency (null if none is injected), and whether the number
    of inference processes is automatic.

    Raises:
        UserError: no daemon answers.
    """
    inference = daemon.get("/v1/config").get("inference", {})
    injected = inference.get("injected_latency_ms") or None
    return {
        "url": daemon.url,
        "status": daemon.get("/v1/status"),
        "stats": daemon.get("/v1/stats"),
        "injected_latency_ms": injected,
        "automatic_processes": inference.get("processes") == "auto",
    }


def _print(console: Console, report: Mapping[str, Any]) -> None:
    status = report["status"]
    console.print(
        f"run {status.get('run_id', UNKNOWN)}: {status.get('state', UNKNOWN)} at {report['url']}"
    )
    console.print()
    figures = plain_table("", "")
    rows = figure_rows(
        report["stats"], report["injected_latency_ms"], report["automatic_processes"]
    )
    for title, text in rows:
        figures.add_row(title, text)
    console.print(figures)
    console.print()
    processes = plain_table("process", "pid", "state", "restarts")
    roles = status.get("roles", [])
    for role in roles:
        processes.add_row(
            _name(role),
            str(role.get("pid") or "-"),
            str(role.get("busy") or role.get("state", UNKNOWN)),
            str(role.get("restarts", 0)),
        )
    console.print(processes)
    for role in roles:
        if role.get("last_error"):
            console.print(f"\nlast error of {_name(role)}:")
            for line in str(role["last_error"]).rstrip().splitlines():
                console.print(printable(line))


def figure_rows(
    stats: Mapping[str, Any], injected_ms: float | None, automatic: bool = False
) -> list[tuple[str, str]]:
    """Title and text of each main figure; what is not known is called unknown.

    Args:
        stats: as `GET /v1/stats` answers.
        injected_ms: mean of the injected latency. If None, the inference time is the policy's own.
        automatic: whether the number of inference processes is.
    """
    shown = _FIGURES
    if _value(stats, "r3.mode") not in (None, "off"):
        shown += _DEADLINES
    if _value(stats, "r3.memory_budget_bytes") is not None:
        shown += _MEMORY
    rows = []
    for title, sentence, *figures in shown:
        texts = [_figure(stats, path, form) for path, form in figures]
        if title == "inference" and automatic:
            texts[1] = f"auto ({texts[1]})"
        text = sentence.format(*texts)
        if title == "inference time" and injected_ms:
            text += f" (injected latency: padded to {injected_ms:g} ms on average)"
        if title == "learners" and _value(stats, "learning.paused"):
            text += " (paused)"
        rows.append((title, text))
    return rows


def _figure(stats: Mapping[str, Any], path: str, form: str | Callable[[Any], str]) -> str:
    value = _value(stats, path)
    if value is None:
        return UNKNOWN
    return form.format(value) if isinstance(form, str) else form(value)


def _value(stats: Mapping[str, Any], path: str) -> Any:
    """The figure at a dotted path; None if it is not known."""
    value: Any = stats
    for key in path.split("."):
        value = value.get(key) if isinstance(value, Mapping) else None
    return value


def _name(role: Mapping[str, Any]) -> str:
    name = str(role.get("name", UNKNOWN))
    several = role.get("role", name) in ("inference", "learner") and " " not in name
    return f"{name} {role.get('index', 0)}" if several else name
