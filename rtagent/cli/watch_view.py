"""The text that `rtagent watch` shows: a snapshot of the daemon as lines, fitted to the terminal.

Pure functions of plain values. Every state is shown by a word as well as by a colour.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rich.console import Console, ConsoleOptions, RenderResult
from rich.text import Text

from rtagent.cli.events import details_of
from rtagent.cli.output import UNKNOWN, known, known_reward, milliseconds
from rtagent.cli.watch_lanes import lane, ruler
from rtagent.logs.printable import printable
from rtagent.telemetry.cluster import in_a_line
from rtagent.telemetry.figures.acting import Inference
from rtagent.telemetry.figures.declaration import from_json
from rtagent.telemetry.figures.document import Answer
from rtagent.telemetry.figures.learning import R3, Learning, Replay
from rtagent.telemetry.remote import in_a_line as remote_line

SPARKS = "▁▂▃▄▅▆▇█"
FULL, EMPTY = "█", "░"
BAR = 20
_TITLE = 11
_PROCESS = 50
_LEVELS = {"good": "green", "watch": "yellow", "bad": "red"}
_STYLES = {"running": "green", "failed": "red", "stopped": "dim"}
_ASCII = str.maketrans(f"{SPARKS}{EMPTY}━●·", "_.,-=+*#.=o.")


@dataclass
class Snapshot:
    """What the daemon has answered; `timeline` and `events` are None if it has none.

    The newest event is the first. `returns` are those of episodes that ended while the daemon was
    watched, oldest first: of several between two looks, the newest one's.
    """

    url: str
    status: Mapping[str, Any]
    stats: Mapping[str, Any]
    inference: Mapping[str, Any]
    timeline: Mapping[str, Any] | None = None
    events: Sequence[Mapping[str, Any]] | None = None
    returns: Sequence[float] = ()


@dataclass
class Frame:
    """A snapshot that is drawn as large as the terminal; `lost` says why the connection is lost."""

    snapshot: Snapshot
    lost: str | None = None

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        width = options.max_width
        for line in frame_lines(self.snapshot, self.lost, width, options.height):
            line.truncate(width, overflow="ellipsis" if not options.ascii_only else "crop")
            if options.ascii_only:
                line.plain = line.plain.translate(_ASCII)
            line.no_wrap = True
            yield line


def frame_lines(snapshot: Snapshot, lost: str | None, width: int, height: int | None) -> list[Text]:
    """A snapshot in so many columns and rows. If `height` is None, in as many rows as it takes."""
    stats = from_json(Answer, snapshot.stats)
    lines = [
        _headline(snapshot, stats, lost), _verdict_line(stats, lost),
        *_figures(snapshot, stats, width),
    ]
    left = None if height is None else max(0, height - len(lines))
    processes = _processes(snapshot, stats, width)
    events = _events(snapshot)
    if left is not None:
        # A few of the newest events are more useful than the last of many processes.
        for_events = min(len(events), max(left // 3, left - len(processes)))
        processes = _fitted(processes, left - for_events)
        events = events[: left - len(processes)]
    lines += [*processes, *events]
    return lines if height is None else lines[:height]


def verdict(stats: Answer) -> tuple[str, str, str]:
    """The daemon's verdict whether the agent acts in time: headline, detail, and a style."""
    found = stats.verdicts.acting
    style = _LEVELS.get(found.level, "yellow")
    return printable(known(found.headline)), printable(known(found.detail)), style


def sparkline(values: Sequence[float], width: int) -> str:
    """The newest values as a row of small bars between their least and their largest."""
    shown = list(values)[-width:] if width > 0 else []
    if not shown:
        return ""
    least, largest = min(shown), max(shown)
    span = (largest - least) or 1.0
    return "".join(SPARKS[round((value - least) / span * (len(SPARKS) - 1))] for value in shown)


def bar(share: float | None, width: int = BAR) -> str:
    """A share as a bar with its figure; above 1 it is full."""
    if share is None:
        return UNKNOWN
    full = round(min(1.0, max(0.0, share)) * width)
    return f"{FULL * full}{EMPTY * (width - full)} {share:4.0%}"


def _headline(snapshot: Snapshot, stats: Answer, lost: str | None) -> Text:
    status = snapshot.status
    text = Text(f"rtagent {status.get('run_id', UNKNOWN)}", "bold")
    state = str(status.get("state", UNKNOWN))
    text.append(f"  {state}", _STYLES.get(state, "yellow"))
    text.append(f"  up {_duration(stats.clock.uptime_s)}  {snapshot.url}", "dim")
    if lost is not None:
        text.append("  (as it was last seen)", "yellow")
    return text


def _verdict_line(stats: Answer, lost: str | None) -> Text:
    if lost is not None:
        return Text(f"CONNECTION LOST: {printable(lost)} (trying again)", "bold red")
    word, reason, style = verdict(stats)
    return Text(word, f"bold {style}").append(f": {reason}", "none")


def _figures(snapshot: Snapshot, stats: Answer, width: int) -> list[Text]:
    clock, actions, episodes = stats.clock, stats.actions, stats.episodes
    rows = [
        ("clock", [
            f"{known(clock.rate_hz, '{:.3f}')} of {known(clock.target_rate_hz, '{:.3f} Hz')}",
            f"late p99 {known(clock.lateness_us.p99, '{:.0f} us')}",
            f"slips {known(clock.slips)}",
            f"drift {known(clock.drift_ms, '{:.1f} ms')}",
        ]),
        ("actions", [
            f"every {known(actions.interaction_ms.mean, '{:.1f} ms')}",
            f"delay {known(actions.delay_ticks.mean, '{:.1f}')} ticks "
            f"(p99 {known(actions.delay_ticks.p99, '{:.0f}')})",
            f"default {known(actions.default, '{:,}')}",
            f"re-used {known(actions.reused, '{:,}')}",
            f"interaction CV {known(actions.interaction_ms.cv, '{:.2f}')}",
        ]),
        ("inference", _inference(snapshot, stats.inference)),
        *([] if stats.inference.remote is None else
          [("server", [remote_line(stats.inference.remote)])]),
        ("learning", _learning(stats.learning)),
        ("replay", [_replay(stats.replay)]),
        *_deadlines(stats.r3, stats.learning),
        *([] if stats.cluster is None else [("cluster", [printable(in_a_line(stats.cluster))])]),
        ("episodes", [
            known(episodes.count, "{:,}"),
            f"last {known_reward(episodes.last_return)}",
            f"mean of 100: {known_reward(episodes.mean_return_100)}",
            sparkline(snapshot.returns, 30),
        ]),
    ]
    return [
        Text(f"{title:<{_TITLE}}", "bold").append(_joined(parts, width - _TITLE), "none")
        for title, parts in rows
    ]


def _joined(parts: Sequence[str], width: int) -> str:
    """The first part, and as many others as fit whole."""
    text = parts[0]
    for part in parts[1:]:
        if not part or len(text) + 2 + len(part) > width:
            break
        text += f", {part}"
    return text


def _inference(snapshot: Snapshot, inference: Inference) -> list[str]:
    number = known(inference.processes)
    if snapshot.inference.get("processes") == "auto":
        number = f"auto ({number})"
    injected = inference.injected_latency_ms
    return [
        f"{known(inference.ready)} of {number} run",
        f"{milliseconds(inference.estimate_ms, 1)} each"
        + (f" ({injected:g} ms injected)" if injected else ""),
        f"recommended {known(inference.recommended_processes)}",
        known(inference.algorithm),
    ]


def _learning(learning: Learning) -> list[str]:
    return [
        ("PAUSED, " if learning.paused else "") + f"{known(learning.updates, '{:,}')} updates",
        f"{known(learning.updates_per_s, '{:.1f}')} per second",
        f"loss {known(learning.loss, '{:.4g}')}",
        f"epsilon {known(learning.epsilon, '{:.3f}')}",
        f"staleness {known(learning.staleness.mean, '{:.1f}')}",
    ]


def _deadlines(r3: R3, learning: Learning) -> list[tuple[str, list[str]]]:
    """The horizon if the deadline controller is on, and memory if it has a budget."""
    rows = []
    if r3.mode not in (None, "off"):
        rows.append(("R3 time", [
            f"{bar(r3.time_ratio)} of {known(r3.deadline_s, '{:.12g} s')}",
            f"{known(r3.horizons.met)} met",
            f"{known(r3.horizons.missed)} missed",
            r3.mode,
        ]))
        rows.append(("R3 data", [
            f"{bar(r3.data_ratio)} of {known(r3.data_budget, '{:,} samples')}",
            f"batch size {known(learning.batch_size, '{:,}')}",
        ]))
    budget, used = r3.memory_budget_bytes, r3.used_bytes
    if budget:
        share = None if used is None else used / budget
        rows.append(("memory", [f"{bar(share)} of {budget / 2**20:,.0f} MiB"]))
    return rows


def _replay(replay: Replay) -> str:
    if replay.size is None or not replay.capacity:
        return UNKNOWN
    return f"{bar(replay.size / replay.capacity)} of {replay.capacity:,} ticks"


def _processes(snapshot: Snapshot, stats: Answer, width: int) -> list[Text]:
    """A line for each inference process, with its lane; then the other processes with faults."""
    room = width - _PROCESS
    timeline = snapshot.timeline if room >= 10 else None
    heading = f"{'process':<14}{'state':<10}{'p50':>7}{'p99 ms':>8}{'restarts':>10}"
    head = Text(heading.ljust(_PROCESS), "bold")
    if timeline is not None:
        head.append_text(ruler(timeline, room))
    lines = [head]
    for worker in stats.inference.workers:
        state, restarts, latency = known(worker.state), worker.restarts or 0, worker.latency_ms
        line = Text(f"{'inference ' + known(worker.id):<14}")
        line.append(f"{state:<10}", _STYLES.get(state, "yellow"))
        line.append(f"{_short(latency.p50):>7}{_short(latency.p99):>8}")
        line.append(f"{restarts:>10}", "yellow" if restarts else "")
        line.append(" " * max(0, _PROCESS - len(line.plain)))
        if timeline is not None:
            line.append(lane(timeline, worker.id, room), "cyan")
        lines.append(line)
    return lines + _faulty(snapshot)


def _faulty(snapshot: Snapshot) -> list[Text]:
    lines = []
    for role in snapshot.status.get("roles", ()):
        state = str(role.get("busy") or role.get("state", UNKNOWN))
        inference = role.get("role") == "inference"
        error = next(reversed(str(role.get("last_error") or "").strip().splitlines()), "")
        if (state == "running" or inference) and not (error and state == "failed"):
            continue
        line = Text(f"{role.get('name', UNKNOWN)!s:<14}")
        line.append(state, _STYLES.get(state, "yellow"))
        lines.append(line.append(f"  {printable(error)}" if error else ""))
    return lines


def _fitted(lines: list[Text], rows: int) -> list[Text]:
    """The lines that fit into so many rows; the last one says how many more there are."""
    if len(lines) <= rows:
        return lines
    if rows < 2:
        return []
    rest = len(lines) - rows + 1
    return [*lines[: rows - 1], Text(f"... and {rest} more", "dim")]


def _events(snapshot: Snapshot) -> list[Text]:
    if not snapshot.events:
        return []
    lines = [Text("newest events (time in UTC)", "bold")]
    for event in snapshot.events:
        when = str(event.get("at", ""))[5:19].replace("T", " ") or UNKNOWN
        source = str(event.get("source") or "-")
        what = f"{when}  {event.get('kind', UNKNOWN)}  {source}  {details_of(event)}"
        lines.append(Text(printable(what).rstrip()))
    return lines


def _short(value: float | None) -> str:
    return "?" if value is None else milliseconds(value, 1, unit="")


def _duration(seconds: float | None) -> str:
    if seconds is None:
        return UNKNOWN
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes} min"
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"
