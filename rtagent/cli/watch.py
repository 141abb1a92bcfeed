"""`rtagent watch`: the running daemon, live in the terminal."""

from __future__ import annotations

import argparse
from collections import deque
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from shutil import get_terminal_size
from time import sleep

from rich.live import Live

from rtagent.cli.daemon import Daemon, add_state_dir_option, find_daemon
from rtagent.cli.options import add_json_option, check_between
from rtagent.cli.output import print_json, stdout
from rtagent.cli.stop_signal import interrupted_by_stop_signals
from rtagent.cli.watch_view import Frame, Snapshot
from rtagent.errors import UserError

DEFAULT_S = 0.5
SHORTEST_S, LONGEST_S = 0.1, 10.0
TIMEOUT_S = 3.0
EVENTS = 8
TIMELINE_S, SLOW_TIMELINE_S = 2, 10
LEAST_TICKS = 12
"""Ticks of a slow world that are asked for."""
RETURNS_KEPT = 200


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--interval", type=float, default=DEFAULT_S, metavar="S",
        help=f"seconds between two looks, {SHORTEST_S:g} to {LONGEST_S:g} (default {DEFAULT_S:g})")
    add("--once", action="store_true",
        help="look once and end; this is the default where stdout is no terminal, or one that "
        "cannot move its cursor (TERM=dumb)")
    add_state_dir_option(parser)
    add_json_option(parser)


def run(args: argparse.Namespace) -> int:
    """Show the daemon until Ctrl-C, which is how one leaves: the exit code is 0.

    Without a daemon it does not begin; one that is lost later is waited for.
    """
    check_between("interval", args.interval, SHORTEST_S, LONGEST_S, " seconds")
    watcher = Watcher(args.state_dir)
    frame = watcher.look()
    console = stdout()
    if args.json:
        print_json(asdict(frame.snapshot))
    elif args.once or not console.is_terminal or console.is_dumb_terminal:
        console.print(frame, width=get_terminal_size().columns)
    else:
        # On the alternate screen: however it ends, the terminal is as it was.
        screen = Live(frame, console=console, screen=True, auto_refresh=False)
        try:
            with suppress(KeyboardInterrupt), interrupted_by_stop_signals(), screen as live:
                # Not for ever, for a terminal can go without a SIGHUP to this process.
                while console.is_terminal:
                    sleep(args.interval)
                    live.update(watcher.look(), refresh=True)
        except OSError:
            # What shows or ends the picture is written to a terminal that is gone.
            if console.is_terminal:
                raise
    return 0


class Watcher:
    """Asks the daemon for its state, and finds it again after it was gone.

    Args:
        state_dir: of the daemon. If None, the configured one.
    """

    def __init__(self, state_dir: Path | None) -> None:
        self._state_dir = state_dir
        self._daemon: Daemon | None = find_daemon(state_dir, TIMEOUT_S)
        self._returns: deque[float] = deque(maxlen=RETURNS_KEPT)
        self._episodes: tuple[object, int] = (None, 0)
        self._newest: Snapshot | None = None

    def look(self) -> Frame:
        """The newest picture; while the connection is lost, the last one with the reason.

        Raises:
            UserError: no daemon has ever answered.
        """
        try:
            if self._daemon is None:
                self._daemon = find_daemon(self._state_dir, TIMEOUT_S)
            self._newest = self._ask(self._daemon)
        except UserError as error:
            if self._newest is None:
                raise
            if self._daemon is not None:
                self._daemon.close()
            # A daemon that is started anew may have another address.
            self._daemon = None
            return Frame(self._newest, lost=str(error))
        return Frame(self._newest)

    def _ask(self, daemon: Daemon) -> Snapshot:
        status, stats = daemon.get("/v1/status"), daemon.get("/v1/stats")
        inference = daemon.get("/v1/inference")
        rate_hz = (stats.get("clock") or {}).get("target_rate_hz") or LEAST_TICKS
        seconds = min(max(TIMELINE_S, LEAST_TICKS / rate_hz), SLOW_TIMELINE_S)
        timeline = daemon.get_if_known(f"/v1/timeline?seconds={seconds:g}")
        events = daemon.get_if_known(f"/v1/events?limit={EVENTS}")
        self._note_return(status.get("run_id"), stats.get("episodes") or {})
        return Snapshot(
            daemon.url, status, stats, inference, timeline,
            None if events is None else events["events"], list(self._returns),
        )

    def _note_return(self, run_id: object, episodes: dict[str, float | None]) -> None:
        count, newest = int(episodes.get("count") or 0), episodes.get("last_return")
        if run_id != self._episodes[0]:
            self._returns.clear()
        if newest is not None and (run_id, count) != self._episodes:
            self._returns.append(newest)
        self._episodes = (run_id, count)
