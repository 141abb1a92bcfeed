"""`rtagent serve`: the daemon."""

from __future__ import annotations

import argparse
import logging
import os
import secrets
import signal
import socket
import sys
from functools import partial
from pathlib import Path
from typing import Any

from rtagent import launch
from rtagent.cli.options import add_config_options
from rtagent.clock import MonotonicClock
from rtagent.config import Config
from rtagent.config_reading import load_config
from rtagent.notify import Notifier, Systemd
from rtagent.state_dir import StateDir
from rtagent.supervisor import Supervisor
from service.binding import bind
from service.settings import Settings
from service.token import load_or_make_token

SERVICE_MODULE = "service.process"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `rtagent serve`."""
    add_config_options(parser)
    parser.add_argument("--host", metavar="H", help="address to bind (127.0.0.1)")
    parser.add_argument("--port", metavar="P", type=int, help="port to bind; 0: a free one (8008)")
    parser.add_argument("--state-dir", metavar="DIR", type=Path, help="token and checkpoints")
    parser.add_argument(
        "--realtime", choices=("auto", "on", "off"), help="SCHED_FIFO for the environment (auto)"
    )
    parser.add_argument(
        "--insecure", action="store_true", help="allow an address that others can reach"
    )
    parser.add_argument("--quiet", action="store_true", help="print the address alone")


def run(args: argparse.Namespace) -> int:
    """Run the daemon until SIGINT or SIGTERM."""
    config = _configured(args)
    logging.basicConfig(
        level=logging.WARNING if args.quiet else logging.INFO,
        format="%(asctime)s %(message)s",
        datefmt="%H:%M:%S",
        stream=sys.stderr,
    )
    state_dir = StateDir(config.state_dir)
    try:
        token = load_or_make_token(config.state_dir, os.environ)
        with bind(config.service.host, config.service.port, config.service.insecure) as sock:
            settings = Settings(
                token=token, host=config.service.host, port=int(sock.getsockname()[1])
            )
            _supervise(config, settings, sock, state_dir)
    finally:
        state_dir.release()
    return 0


def _configured(args: argparse.Namespace) -> Config:
    """The configuration with this command's own options on top."""
    options = {
        "service.host": args.host,
        "service.port": args.port,
        "service.insecure": "true" if args.insecure else None,
        "run.state_dir": args.state_dir,
        "run.realtime": args.realtime,
    }
    given = [f"{name}={value}" for name, value in options.items() if value is not None]
    return load_config(args.config, [*args.overrides, *given])


def _supervise(
    config: Config, settings: Settings, sock: socket.socket, state_dir: StateDir
) -> None:
    run_id = secrets.token_hex(4)
    supervisor = Supervisor(
        config,
        MonotonicClock(),
        run_id,
        service=partial(_start_service, settings, sock),
        url=settings.url,
        preload=(SERVICE_MODULE,),
        systemd=Systemd(Notifier.from_environment(os.environ)),
    )
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: supervisor.request_stop())
    state_dir.announce({"url": settings.url, "pid": os.getpid(), "run_id": run_id})
    print(f"rtagent {config.env.id}: {settings.login_url}", flush=True)
    supervisor.run()


def _start_service(settings: Settings, sock: socket.socket, handles: Any, voice: Any) -> Any:
    return launch.spawn(_run_service, handles, voice, settings, sock, name="service")


def _run_service(handles: Any, voice: Any, settings: Settings, sock: socket.socket) -> None:
    # FastAPI is for the service's process alone.
    from service.process import run as run_service

    run_service(handles, voice, settings, sock)
