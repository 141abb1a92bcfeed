"""`rtagent policy-server`: answers for others, over the network, by a checkpoint or any module."""

from __future__ import annotations

import argparse
import asyncio
import os
import select
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from rtagent import __version__
from rtagent.cli.checkpoint_options import add_checkpoint_options, checkpoint_of
from rtagent.cli.options import check_between
from rtagent.cli.output import json_text, own_stdout
from rtagent.clock import MonotonicClock
from rtagent.config import Config
from rtagent.config_sources import load_config
from rtagent.errors import UserError
from rtagent.evaluation.probe import probe
from rtagent.evaluation.trained_policy import Answering, TrainedPolicy
from rtagent.files.certificate import tls_context
from rtagent.memory.blueprint import Blueprint
from rtagent.policy.device import usable_device
from rtagent.policy.inputs import input_space
from rtagent.policy.networks import build, head_of
from rtagent.remote.answers import Terms
from rtagent.remote.batching import Arrays
from rtagent.remote.server import Counts, PolicyServer, Served, listen
from rtagent.remote.wire import token_of

PERIOD_S = 10.0
STDOUT = 1


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_checkpoint_options(parser, "or package.module:callable, as policy.factory names it; ")
    add = parser.add_argument
    add("--host", default="127.0.0.1", help="address to bind (default 127.0.0.1)")
    add("--port", type=int, default=8000, help="port to bind; 0: a free one (default 8000)")
    add("--parallel", metavar="N", type=int, default=1,
        help="batches that are computed at the same time (default 1); more where the policy waits "
        "for an accelerator, or for something else than the processor")
    add("--tls-certificate", metavar="FILE", type=Path,
        help="PEM file with a certificate and its chain: serve wss://, and nothing else")
    add("--tls-key", metavar="FILE", type=Path,
        help="PEM file with its key, without a passphrase; default: it is in the certificate's")
    add("--json", action="store_true", help="a JSON document per line on stdout")


def run(args: argparse.Namespace) -> int:
    """Serve until SIGTERM or Ctrl-C; a line every 10 s in which something was asked."""
    check_between("parallel", args.parallel, 1, 64)
    check_between("port", args.port, 0, 65_535)
    names = "--tls-certificate", "--tls-key"
    token, tls = token_of(os.environ), tls_context(args.tls_certificate, args.tls_key, names)
    with listen(args.host, args.port, token) as sock:
        with own_stdout():
            factory = _is_factory(args.checkpoint)
            served = _factory_policy(args) if factory else _checkpoint_policy(args)
        host = f"[{args.host}]" if ":" in args.host else args.host
        scheme = "ws" if tls is None else "wss"
        address = f"{scheme}://{host}:{sock.getsockname()[1]}"

        async def serve() -> None:
            server = PolicyServer(served, MonotonicClock(), token, args.parallel)
            server.stop_at_signals()
            print(json_text({"address": address, **served.metadata()}) if args.json else
                  f"rtagent policy-server: {address}{_needed_settings(served)}", flush=True)
            async with asyncio.TaskGroup() as tasks:
                printing = tasks.create_task(_print_counts(server.counts, args.json))
                await server.run(sock, tls)
                printing.cancel()

        asyncio.run(serve())
    return 0


def _needed_settings(served: Served) -> str:
    """The settings that a daemon needs beside the address."""
    state = f", policy.remote_state={served.state}" if served.state else ""
    return state + (", env.pending_actions as in its run" if served.pending else "")


def _is_factory(given: Path | None) -> bool:
    return given is not None and ":" in str(given) and not given.exists()


def _checkpoint_policy(args: argparse.Namespace) -> Served:
    path, saved, config = checkpoint_of(args)
    policy = TrainedPolicy(config, saved, path)
    about = {"updates": saved.counters.updates}
    return _served(policy.answering(), policy.blueprint, config, about)


def _factory_policy(args: argparse.Namespace) -> Served:
    """The network of a `policy.factory`, with the weights that the factory gave it."""
    given = (*args.overrides, f"policy.factory={args.checkpoint}", "learning.processes=0")
    config = load_config(args.config, given)
    if config.policy.pretrained is not None:
        raise UserError(
            "policy.pretrained is not served; let it act in the daemon, or serve a factory of two "
            "arguments that loads it"
        )
    blueprint = probe(config)
    spaces = input_space(blueprint), blueprint.action_space
    head = head_of(config.learning, blueprint.action_space)
    module = Answering(build(config.policy, *spaces, head), head)
    return _served(module.eval().requires_grad_(False), blueprint, config, {})


def _served(
    module: nn.Module, blueprint: Blueprint, config: Config, about: dict[str, Any]
) -> Served:
    terms, space = Terms.of(blueprint), blueprint.observation_space
    device = usable_device(config.policy.device, "policy.device")
    about = {"rtagent": __version__, "environment": config.env.id, **about}
    served = Served(
        _answering(module.to(device), device), tuple(space.shape), np.dtype(space.dtype),
        terms.outputs, terms.discrete, terms.state, terms.pending, about,
    )
    try:
        # The first call is the slowest, and shows whether the policy works.
        served.answer(*(each[None] for each in served.blank()))
    except Exception as error:
        raise UserError(f"the policy does not answer: {type(error).__name__}: {error}") from error
    return served


def _answering(module: nn.Module, device: torch.device) -> Callable[..., Arrays]:
    def answer(*question: npt.NDArray[Any]) -> Arrays:
        with torch.inference_mode():
            found = module(*(torch.from_numpy(each).to(device) for each in question))
            tensors = found if isinstance(found, tuple) else (found,)
            return tuple(each.float().cpu().numpy() for each in tensors)

    return answer


async def _print_counts(counts: Counts, as_json: bool, stdout: int = STDOUT) -> None:
    """Print what the server has done, every 10 s, until nobody reads it.

    A line for which a full pipe or a stopped terminal has no room is left out: a thread that waits
    for that room would keep this process when it is told to stop.
    """
    room = select.poll()
    room.register(stdout, select.POLLOUT)
    before = Counts()
    while True:
        await asyncio.sleep(PERIOD_S)
        answers, refused = counts.answers - before.answers, counts.refused - before.refused
        if (answers or refused or counts.clients != before.clients) and room.poll(0):
            each = max(1, answers)
            said = {
                "clients": counts.clients, "answers_per_s": answers / PERIOD_S,
                "compute_ms": 1e3 * (counts.compute_s - before.compute_s) / each,
                "queue_ms": 1e3 * (counts.queue_s - before.queue_s) / each, "refused": refused,
            }
            line = json_text(said) if as_json else (
                "{clients} client{s}, {answers_per_s:.1f} answers/s, compute {compute_ms:.1f} ms, "
                "queue {queue_ms:.1f} ms, {refused} refused".format(
                    **said, s="" if counts.clients == 1 else "s"
                )
            )
            try:
                # Others write there, too, and may take the room.
                await asyncio.to_thread(print, line, flush=True)
            except OSError:
                # Nobody reads the lines any more; the clients are still served.
                return
        before = Counts(**vars(counts))
