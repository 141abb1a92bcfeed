"""`rtagent serve`: the daemon."""

from __future__ import annotations

import argparse
import logging
import os
import secrets
import signal
import socket
from functools import partial
from pathlib import Path
from typing import Any

from rtagent.cli.options import add_config_options, config_of
from rtagent.cli.stop_signal import stop_signals
from rtagent.clock import MonotonicClock
from rtagent.config import Config
from rtagent.config_sources import quoted
from rtagent.errors import UserError
from rtagent.files.certificate import tls_context
from rtagent.logs.log_format import FORMATS, log_to_stderr
from rtagent.processes.scheduling import spare_or_sacrifice
from rtagent.processes.systemd import Systemd
from rtagent.supervisor.state_dir import StateDir
from rtagent.supervisor.supervisor import Supervisor
from service.http.binding import bind, is_loopback
from service.http.sessions import FILE_NAME as SESSIONS_FILE
from service.http.sessions import Sessions
from service.http.settings import Settings
from service.http.token import load_or_make_token

INSECURE = (
    "without TLS, anybody on the way between a client and this machine can read the token; "
    "service.certificate in the configuration, a reverse proxy or ssh keeps it secret"
)
SERVICE_MODULE = "service.process"
PROTECTED = -500
"""When memory is short, the kernel ends other processes first: nothing goes on without the daemon.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add_config_options(parser)
    add("--host", metavar="H", help="address to bind; default: service.host, 127.0.0.1")
    add("--port", metavar="P", type=int,
        help="port to bind; 0: a free one; default: service.port, 8008")
    add("--state-dir", metavar="DIR", type=Path,
        help="folder for token and checkpoints; default: run.state_dir")
    add("--realtime", choices=("auto", "on", "off"),
        help="SCHED_FIFO for the environment; default: run.realtime, auto")
    add("--insecure", action="store_true", help="allow an address that others can reach")
    add_log_options(parser)


def add_log_options(parser: argparse.ArgumentParser) -> None:
    """`--log-format` and `--quiet`."""
    add = parser.add_argument
    add("--log-format", choices=FORMATS, default="text",
        help="form of the log on stderr: a line of text (default) or a JSON object for each event")
    add("--quiet", action="store_true", help="print only the address, warnings and errors")


def run(args: argparse.Namespace) -> int:
    """Run the daemon until SIGINT, SIGTERM or SIGHUP."""
    return serve(_configured(args), quiet=args.quiet, log_format=args.log_format)


def serve(config: Config, *, quiet: bool, log_format: str) -> int:
    """Run the daemon until SIGINT, SIGTERM or SIGHUP; `quiet` logs warnings and errors alone."""
    log_to_stderr(log_format, logging.WARNING if quiet else logging.INFO)
    # Only the daemon's user may read what it writes.
    os.umask(0o077)
    spare_or_sacrifice(PROTECTED)
    state_dir = StateDir(config.state_dir)
    try:
        token = load_or_make_token(config.state_dir, os.environ)
        service = config.service
        # A certificate that cannot be used is refused before anything is started.
        encrypted = tls_context(service.certificate, service.private_key) is not None
        with bind(service.host, service.port, service.insecure or encrypted) as sock:
            if service.insecure and not encrypted and not is_loopback(sock):
                logging.getLogger("rtagent").warning(INSECURE)
            settings = Settings(
                token=token, host=service.host, port=int(sock.getsockname()[1]),
                allowed_hosts=frozenset(service.allowed_hosts), certificate=service.certificate,
                private_key=service.private_key, sessions_file=config.state_dir / SESSIONS_FILE,
            )
            _supervise(config, settings, sock, state_dir, log_format)
    finally:
        state_dir.release()
    return 0


def _configured(args: argparse.Namespace) -> Config:
    """The configuration, with this command's own options as the strongest source."""
    options = {
        "service.host": None if args.host is None else quoted(args.host),
        "service.port": args.port,
        "service.insecure": "true" if args.insecure else None,
        "run.realtime": args.realtime,
    }
    given = [f"{name}={value}" for name, value in options.items() if value is not None]
    return config_of(args, given)


def _supervise(
    config: Config, settings: Settings, sock: socket.socket, state_dir: StateDir, log_format: str
) -> None:
    run_id = secrets.token_hex(4)
    address = f"rtagent {config.env.id}: {settings.login_url(_first_code(settings))}"
    supervisor = Supervisor(
        config,
        MonotonicClock(),
        run_id,
        service=partial(_run_service, settings, sock, log_format),
        url=settings.url,
        preload=(SERVICE_MODULE,),
        systemd=Systemd(os.environ),
        # Not before it is known that the run can start.
        probed=lambda: print(address, flush=True),
    )
    for number in stop_signals():
        signal.signal(number, lambda *_: supervisor.request_stop())
    note = {"url": settings.url, "pid": os.getpid(), "run_id": run_id}
    if settings.certificate is not None:
        # `rtagent status` and `set` trust this certificate alone.
        note["certificate"] = str(settings.certificate.absolute())
    state_dir.announce(note)
    state_dir.watch(supervisor.give_up)
    supervisor.run()


def _first_code(settings: Settings) -> str:
    """A login code for the printed address; the service finds it in the file of sessions."""
    sessions = Sessions(settings.token, settings.sessions_file)
    code = sessions.new_code()
    try:
        sessions.write(sessions.content())
    except OSError as error:
        raise UserError(
            f"cannot write {settings.sessions_file}: {error.strerror}; make room, or choose "
            "another state directory with --state-dir"
        ) from None
    return code


def _run_service(
    settings: Settings, sock: socket.socket, log_format: str, handles: Any, pipe: Any
) -> None:
    log_to_stderr(log_format, logging.WARNING)
    # Only the service's process loads FastAPI.
    from service.process import run as run_service

    run_service(handles, pipe, settings, sock)
