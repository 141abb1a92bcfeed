"""`rtagent status`: the running daemon's processes and its main figures."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import Any

from rich.console import Console

from rtagent.cli.daemon import Daemon, add_state_dir_option, find_daemon
from rtagent.cli.options import UNKNOWN, add_json_option, plain_table, print_json, stdout

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
        "episodes",
        "{}, last return {}, mean of the last 100: {}",
        ("episodes.count", "{}"),
        ("episodes.last_return", "{:.1f}"),
        ("episodes.mean_return_100", "{:.1f}"),
    ),
)
"""Title, sentence, and the figures of the sentence with their formats."""


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
    """Address, status, figures and injected latency (null if none is injected).

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
    }


def _print(console: Console, report: Mapping[str, Any]) -> None:
    status = report["status"]
    console.print(
        f"run {status.get('run_id', UNKNOWN)}: {status.get('state', UNKNOWN)} at {report['url']}"
    )
    console.print()
    figures = plain_table("", "")
    for title, text in figure_rows(report["stats"], report["injected_latency_ms"]):
        figures.add_row(title, text)
    console.print(figures)
    console.print()
    processes = plain_table("process", "pid", "state", "restarts")
    roles = status.get("roles", [])
    for role in roles:
        processes.add_row(
            _name(role),
            str(role.get("pid") or "-"),
            str(role.get("state", UNKNOWN)),
            str(role.get("restarts", 0)),
        )
    console.print(processes)
    for role in roles:
        if role.get("last_error"):
            console.print(f"\nlast error of {_name(role)}:")
            console.print(str(role["last_error"]).rstrip())


def figure_rows(stats: Mapping[str, Any], injected_ms: float | None) -> list[tuple[str, str]]:
    """Title and text of each main figure; what is not known is called unknown.

    Args:
        stats: as `GET /v1/stats` answers.
        injected_ms: mean of the injected latency; none: the inference time is the policy's own.
    """
    rows = []
    for title, sentence, *figures in _FIGURES:
        text = sentence.format(*(_figure(stats, path, form) for path, form in figures))
        if title == "inference time" and injected_ms:
            text += f" (injected latency: padded to {injected_ms:g} ms on average)"
        rows.append((title, text))
    return rows


def _figure(stats: Mapping[str, Any], path: str, form: str) -> str:
    value: Any = stats
    for key in path.split("."):
        value = value.get(key) if isinstance(value, Mapping) else None
    return UNKNOWN if value is None else form.format(value)


def _name(role: Mapping[str, Any]) -> str:
    name = str(role.get("name", UNKNOWN))
    several = role.get("role", name) in ("inference", "learner") and " " not in name
    return f"{name} {role.get('index', 0)}" if several else name
