"""`rtagent check-env`: is an environment fit for a world that does not wait?"""

from __future__ import annotations

import argparse
import json
from typing import Any

from rtagent.cli.options import (
    add_config_options,
    add_json_option,
    add_seconds_option,
    config_of,
)
from rtagent.cli.output import report, spinner
from rtagent.cli.stop_signal import interrupted_by_stop_signals
from rtagent.cli.verdicts import show
from rtagent.errors import UserError
from rtagent.testing import check_realtime

EXIT_FAILED = 1


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("env_id", metavar="ENV_ID", nargs="?",
        help="a registered Gymnasium id, package.module:EnvId-v0, or package.module:name of a "
        "class or function; default: env.id of the configuration")
    add("--rate-hz", type=float, metavar="R",
        help="ticks per second; default: env.rate_hz, else the world's own")
    add("--kwargs", metavar="JSON",
        help="passed on to the environment's constructor, in place of env.kwargs")
    add_config_options(parser)
    add_seconds_option(parser, 5.0, "how long to step it on the wall clock")
    add_json_option(parser)


def run(args: argparse.Namespace) -> int:
    """Check it in a child process; 0 unless something fails."""
    env = config_of(args).env
    env_id = args.env_id or env.id
    kwargs = env.kwargs if args.kwargs is None else _kwargs(args.kwargs)
    settings = env.model_dump(
        exclude_unset=True, exclude={"id", "kwargs", "step_limit_s", "reset_limit_s"}
    )
    # SIGTERM, as `timeout` sends it, would leave behind what the environment has started.
    with interrupted_by_stop_signals(), spinner(f"checking {env_id}") as show_text:
        found = check_realtime(
            env_id, rate_hz=args.rate_hz, kwargs=kwargs, seconds=args.seconds,
            step_limit_s=env.step_limit_s, reset_limit_s=env.reset_limit_s, settings=settings,
            progress=lambda call: show_text(f"checking {env_id}: {call}"),
        )
    report(args, found.as_dict(), lambda _: show(found.checks))
    return 0 if found.ok else EXIT_FAILED


def _kwargs(text: str) -> dict[str, Any]:
    try:
        kwargs = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UserError(f"--kwargs {text}: not JSON: {error}") from None
    if not isinstance(kwargs, dict):
        raise UserError(f"--kwargs {text}: expected an object such as '{{\"speed\": 0.1}}'")
    return kwargs
