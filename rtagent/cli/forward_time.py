"""Measures the policy's inference time, in a process like the one that will act.

The measured process is forked by the fork server, as an inference process is, so that what it
imports, its one thread and its precision are the same; and an environment that crashes its
process, while its shapes are found, does not take the command line with it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from rtagent import launch
from rtagent.clock import MonotonicClock
from rtagent.config import Config
from rtagent.errors import UserError
from rtagent.worker import start_life

LEAST_PASSES = 5
PROGRESS_EVERY_S = 0.1


@dataclass(frozen=True)
class ForwardTimes:
    """What was measured.

    Attributes:
        rate_hz: of the environment.
        network: in a word or two.
        precision: of the weights.
        parameters: their number.
        forward_s: seconds of each forward pass.
        inference_s: the same, padded by the injected latency; equal to `forward_s` without any.
    """

    rate_hz: float
    network: str
    precision: str
    parameters: int
    forward_s: npt.NDArray[np.float64]
    inference_s: npt.NDArray[np.float64]


def measure(
    config: Config, seconds: float, on_progress: Callable[[float], None]
) -> ForwardTimes:
    """Build the configured network and time its forward passes.

    Args:
        config: environment, policy, injected latency.
        seconds: how long to measure, after the warm-up.
        on_progress: called with the fraction that is done.

    Raises:
        UserError: the environment or the network cannot be built as configured.
    """
    launch.start_fork_server()
    ours, theirs = launch.pipe()
    process = launch.spawn(_measure_here, config, seconds, theirs, name="plan")
    theirs.close()
    try:
        while True:
            kind, value = ours.recv()
            if kind == "failed":
                raise UserError(value)
            if kind == "measured":
                measured: ForwardTimes = value
                return measured
            on_progress(value)
    except EOFError:
        raise UserError(
            f"the environment or the network of env.id = {config.env.id!r} ended its process "
            "while it was measured"
        ) from None
    finally:
        process.kill()
        process.join()
        ours.close()
        launch.stop_fork_server()


def _measure_here(config: Config, seconds: float, voice: Any) -> None:
    """Body of the measured process."""
    import torch

    from rtagent.probe import probe

    start_life("plan")
    torch.set_num_threads(1)
    try:
        blueprint = probe(config)
        voice.send(("measured", _times(config, blueprint, seconds, voice)))
    except UserError as error:
        voice.send(("failed", str(error)))


def _times(config: Config, blueprint: Any, seconds: float, voice: Any) -> ForwardTimes:
    from rtagent.inference.latency import draw
    from rtagent.networks import ActingPolicy, describe, inference_precision, resolved_name

    space, policy, inference = blueprint.observation_space, config.policy, config.inference
    acting = ActingPolicy(policy, space, blueprint.action_space)
    acting.warm_up()
    rng = np.random.default_rng(config.run.seed)
    observation = np.zeros(space.shape, space.dtype)
    clock = MonotonicClock()
    passes: list[float] = []
    start = clock.now()
    told = before = start
    while before - start < seconds or len(passes) < LEAST_PASSES:
        acting.values(observation)
        after = clock.now()
        passes.append(after - before)
        if after - told > PROGRESS_EVERY_S:
            told = after
            voice.send(("progress", min(1.0, (after - start) / seconds)))
        before = clock.now()
    forward = np.array(passes)
    padding = [
        draw(
            inference.injected_latency_ms / 1e3,
            inference.injected_latency_distribution,
            inference.injected_latency_spread,
            rng,
        )
        for _ in passes
    ]
    return ForwardTimes(
        rate_hz=blueprint.rate_hz,
        network=describe(policy, space),
        precision=str(inference_precision(policy, resolved_name(policy, space))).rpartition(".")[2],
        parameters=blueprint.parameters,
        forward_s=forward,
        inference_s=np.maximum(forward, padding),
    )
