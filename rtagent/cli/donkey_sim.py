"""`rtagent donkey-sim`: the DonkeyCar simulator for clients anywhere."""

from __future__ import annotations

import argparse
import ipaddress
import signal
import socket
import sys
from collections.abc import Callable

from rich.live import Live

from rtagent.cli.options import check_between
from rtagent.cli.output import stdout
from rtagent.clock import Clock, MonotonicClock
from rtagent.env.donkey.protocol import DEFAULT_PORT
from rtagent.env.donkey.race import Rules
from rtagent.env.donkey.server import Figures, Simulator
from rtagent.errors import UserError, reason_of

SECONDS_PER_LAP = 120.0
CHECKPOINTS = 8
REFRESH_S = 1.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--host", default="127.0.0.1", metavar="H", help="address to bind (default 127.0.0.1)")
    add("--port", type=int, default=DEFAULT_PORT, metavar="P",
        help=f"port to bind; 0: a free one (default {DEFAULT_PORT})")
    add("--track", choices=("circuit", "generated"),
        help="the road of every scene; without it each scene has its own")
    add("--seed", type=int, default=0, metavar="K", help="seed of the generated road (default 0)")
    add("--fps", type=float, default=60.0, help="telemetry frames per second (default 60)")
    add("--clients", type=int, default=16, metavar="N", help="most clients at a time (default 16)")
    add("--allow-quit", action="store_true", help="a client's `quit_app` ends the simulator")
    add("--race", type=int, metavar="LAPS",
        help="each client races against the clock; default: no race")
    add("--race-time-limit", type=float, metavar="S",
        help=f"seconds for the whole race (default {SECONDS_PER_LAP:g} for each lap)")
    add("--checkpoints", type=int, metavar="N",
        help=f"checkpoints in a lap of the race, with the starting line (default {CHECKPOINTS})")


def run(args: argparse.Namespace) -> int:
    """Serve until Ctrl-C, or, with `--allow-quit`, until a client sends `quit_app`."""
    _check_bounds(args)
    race = _race(args)
    six = ":" in args.host
    family = socket.AF_INET6 if six else socket.AF_INET
    try:
        listener = socket.create_server((args.host, args.port), family=family, dualstack_ipv6=six)
    # A kernel may have no IPv6; TypeError is raised for a name that no host can have.
    except (OSError, TypeError, ValueError) as error:
        reason = reason_of(error)
        raise UserError(
            f"cannot listen on {args.host}:{args.port}: {reason}; choose another --host or --port"
        ) from None
    clock = MonotonicClock()
    simulator = Simulator(
        listener, clock, fps=args.fps, seed=args.seed, track=args.track, race=race,
        most_clients=args.clients, may_quit=args.allow_quit,
    )
    host, port = simulator.address
    where = f"[{host}]:{port}" if six else f"{host}:{port}"
    if not ipaddress.ip_address(host).is_loopback:
        print(
            f"rtagent donkey-sim: warning: whoever reaches {where} can drive here; the "
            "protocol knows no password and no encryption",
            file=sys.stderr, flush=True,
        )
    announced = f"rtagent donkey-sim: {where}, {args.fps:g} frames per second"
    if race is not None:
        laps = f"{race.laps} lap{'' if race.laps == 1 else 's'}"
        announced += f", a race of {laps} within {race.time_limit_s:g} s"
    print(announced, flush=True)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    if not sys.stdout.isatty():
        simulator.run()
        return 0
    with Live(console=stdout(), auto_refresh=False) as live:
        simulator.run(_refresher(simulator, clock, live))
    return 0


def _refresher(simulator: Simulator, clock: Clock, live: Live) -> Callable[[], bool]:
    """A callback for the simulator's loop, which shows clients and frames per second every second.

    It returns True: the loop goes on.
    """
    shown_at, shown_frames = clock.now(), 0

    def update() -> bool:
        nonlocal shown_at, shown_frames
        passed = clock.now() - shown_at
        if passed >= REFRESH_S:
            figures, clients = simulator.figures, simulator.clients
            fps = (figures.frames - shown_frames) / passed / max(clients, 1)
            live.update(_status_text(clients, fps, figures), refresh=True)
            shown_at, shown_frames = clock.now(), figures.frames
        return True

    return update


def _status_text(clients: int, fps: float, figures: Figures) -> str:
    """The status line; faults only where there are any."""
    faults = {
        "withheld": figures.withheld, "left out": figures.left_out, "malformed": figures.malformed,
        "refused": figures.refused, "turned away": figures.turned_away,
        "disconnected": figures.broken + figures.silent + figures.failed,
    }
    parts = [f"{clients} client{'' if clients == 1 else 's'}, {fps:.1f} frames per second each"]
    return ", ".join(parts + [f"{count} {name}" for name, count in faults.items() if count])


def _check_bounds(args: argparse.Namespace) -> None:
    check_between("port", args.port, 0, 65_535)
    check_between("fps", args.fps, 1.0, 240.0)
    check_between("clients", args.clients, 1, 64)
    if not 0 <= args.seed < 2**63:
        raise UserError(f"--seed {args.seed}: must be 0 to {2**63 - 1}")


def _race(args: argparse.Namespace) -> Rules | None:
    """The rules of the race that the options describe; None without `--race`."""
    laps, limit, checkpoints = args.race, args.race_time_limit, args.checkpoints
    if laps is None:
        if limit is not None or checkpoints is not None:
            raise UserError("--race-time-limit, --checkpoints: only together with --race LAPS")
        return None
    limit = SECONDS_PER_LAP * laps if limit is None else limit
    checkpoints = CHECKPOINTS if checkpoints is None else checkpoints
    check_between("race", laps, 1, 500, " laps")
    check_between("race-time-limit", limit, 1.0, 86_400.0, " seconds")
    check_between("checkpoints", checkpoints, 1, 50)
    return Rules(laps, limit, checkpoints)
