"""`rtagent events`: what happened in the run of the running daemon."""

from __future__ import annotations

import argparse
import logging
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from time import sleep
from typing import Any
from urllib.parse import urlencode

from rich.console import Console
from rich.text import Text

from rtagent.cli.daemon import Daemon, add_state_dir_option, find_daemon
from rtagent.cli.options import add_json_option, check_between
from rtagent.cli.output import UNKNOWN, json_text, print_json, stdout
from rtagent.errors import UserError
from rtagent.logs.event_levels import KIND_PATTERN, level_of
from rtagent.logs.printable import printable

DEFAULT_LIMIT = 20
MOST = 1000
POLL_S = 1.0
PAGE = 100
LONGEST = 200
"""Characters of an event's details; `--json` shows all of them."""
_COMMON = ("id", "at", "uptime_s", "kind", "source", "level")
_LINE = "{:<20}  {:<22}  {:<14}  {}"
_STYLES = {logging.ERROR: "red", logging.WARNING: "yellow"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--limit", type=int, default=DEFAULT_LIMIT, metavar="N",
        help=f"the newest N events, 1 to {MOST:,} (default {DEFAULT_LIMIT})")
    add("--kind", action="append", default=[], metavar="K", dest="kinds",
        help="only events of this kind; may be repeated")
    add("--follow", action="store_true",
        help="go on with new events until Ctrl-C; with --json, one JSON document per line")
    add_state_dir_option(parser)
    add_json_option(parser)


def run(args: argparse.Namespace) -> int:
    """Print what happened, the newest at the bottom."""
    check_between("limit", args.limit, 1, MOST)
    for kind in args.kinds:
        if not re.fullmatch(KIND_PATTERN, kind):
            raise UserError(f"--kind {kind}: expected small letters, digits, hyphen, underscore")
    daemon = find_daemon(args.state_dir)
    run_id = _run_id(daemon)
    events = _ask(daemon, args.limit, args.kinds)[::-1]
    if args.json and not args.follow:
        print_json(events)
        return 0
    console = stdout()
    if not args.json:
        _print_line(console, _LINE.format("time (UTC)", "event", "source", "details"), "bold")
    _print(console, events, args.json)
    if args.kinds and not events:
        there = sorted({event["kind"] for event in _ask(daemon, MOST, ())})
        none = f"no event of kind {' or '.join(args.kinds)}"
        told = f"rtagent: {none}; this run has: {', '.join(there) or 'none of any kind'}"
        print(printable(told), file=sys.stderr, flush=True)
    if args.follow:
        for new in _follow(daemon, args, run_id, events[-1]["id"] if events else 0):
            _print(console, new, args.json)
    return 0


def _follow(
    daemon: Daemon, args: argparse.Namespace, run_id: str, last: int
) -> Iterator[list[dict[str, Any]]]:
    """The events after event `last` of a run, oldest first, for ever; waits for the daemon."""
    lost = False
    while True:
        sleep(POLL_S)
        try:
            if lost:
                daemon = find_daemon(args.state_dir)
            newest_run = _run_id(daemon)
            if newest_run != run_id:
                # Each run numbers its events from 1.
                run_id, last = newest_run, 0
            new = _since(daemon, last, args.kinds)
        except UserError as error:
            if not lost:
                message = printable(f"rtagent: {error} (waiting for it)")
                print(message, file=sys.stderr, flush=True)
            lost = True
            continue
        lost = False
        if new:
            last = new[-1]["id"]
            yield new


def _since(daemon: Daemon, last: int, kinds: Sequence[str]) -> list[dict[str, Any]]:
    """The events after event `last`, oldest first."""
    page = found = _ask(daemon, PAGE, kinds)
    while len(page) == PAGE and page[-1]["id"] > last + 1:
        page = _ask(daemon, PAGE, kinds, page[-1]["id"])
        found = found + page
    return [event for event in reversed(found) if event["id"] > last]


def _run_id(daemon: Daemon) -> str:
    return str(daemon.get("/v1/status").get("run_id", UNKNOWN))


def _ask(
    daemon: Daemon, limit: int, kinds: Sequence[str], before: int | None = None
) -> list[dict[str, Any]]:
    """Events, newest first."""
    query: dict[str, Any] = {"limit": limit, "kind": kinds}
    if before is not None:
        query["before"] = before
    answer = daemon.get(f"/v1/events?{urlencode(query, doseq=True)}")
    return list(answer["events"])


def _print(console: Console, events: Sequence[Mapping[str, Any]], as_json: bool) -> None:
    for event in events:
        if as_json:
            print(json_text(event), flush=True)
        else:
            _print_line(console, line_of(event), _STYLES.get(level_of(event["kind"]), ""))


def _print_line(console: Console, line: str, style: str) -> None:
    """A terminal gets one row for each event, a file or a pipe the whole line."""
    if console.is_terminal:
        console.print(Text(line, style), no_wrap=True, overflow="ellipsis")
    else:
        console.print(Text(line, style), soft_wrap=True)


def line_of(event: Mapping[str, Any]) -> str:
    """An event as one line: time, kind, source, details."""
    at = str(event["at"])[:19].replace("T", " ")
    return _LINE.format(at, event["kind"], event["source"] or "-", details_of(event)).rstrip()


def details_of(event: Mapping[str, Any]) -> str:
    """The details of an event, short; of a change the old and the new value, and who made it."""
    details = {key: value for key, value in event.items() if key not in _COMMON}
    parts = []
    if "before" in details and "after" in details:
        change = _change(details.pop("before"), details.pop("after"))
        parts.append(f"{change} by {details.pop('by')}" if "by" in details else change)
    parts += [f"{key}: {_in_words(value)}" for key, value in details.items()]
    text = printable(", ".join(parts))
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 3]}..."


def _change(before: Any, after: Any) -> str:
    """The old and the new value; of several settings, each with its name."""
    if not (isinstance(before, Mapping) and isinstance(after, Mapping)):
        return change_in_words(before, after)
    return ", ".join(
        f"{key}: {change_in_words(before.get(key, UNKNOWN), value)}" for key, value in after.items()
    )


def change_in_words(before: Any, after: Any) -> str:
    """The old and the new value of a setting, with all their digits; one, if it is the same."""
    was, now = _in_words(before, repr), _in_words(after, repr)
    return f"already {now}" if before == after else f"{was} -> {now}"


def _in_words(value: Any, number: Callable[[float], str] = "{:.6g}".format) -> str:
    """A value in a few words: of a text with several lines, such as a traceback, the last one.

    Args:
        value: as JSON has it.
        number: writes a number with a fraction.
    """
    if value is None:
        return "none"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return number(value).removesuffix(".0")
    if isinstance(value, str):
        return next((line.strip() for line in reversed(value.splitlines()) if line.strip()), "")
    if isinstance(value, Mapping):
        items = (f"{key}: {_in_words(each, number)}" for key, each in value.items())
        return f"{{{', '.join(items)}}}"
    if isinstance(value, Sequence):
        return f"[{', '.join(_in_words(each, number) for each in value)}]"
    return str(value)
