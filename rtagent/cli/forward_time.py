"""Measures the policy's times, in a process like the one that will act.

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
from rtagent.cli.update_time import UpdateTimes, measure_updates
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
) -> tuple[ForwardTimes, UpdateTimes | None]:
    """Build the configured network and time its forward passes, then a learner's updates.

    Args:
        config: environment, policy, injected latency, learning.
        seconds: how long to measure, after the warm-up; half of it for each.
        on_progress: called with the fraction that is done.

    Returns:
        The times; None for those of learning: there is too little memory to learn.

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
                measured: tuple[ForwardTimes, UpdateTimes | None] = value
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
    report = _Reporter(voice)
    try:
        blueprint = probe(config)
        half = seconds / 2.0
        forward = _times(config, blueprint, half, lambda done: report(done / 2.0))
        update = measure_updates(config, blueprint, half, lambda done: report((1.0 + done) / 2.0))
        voice.send(("measured", (forward, update)))
    except UserError as error:
        voice.send(("failed", str(error)))


class _Reporter:
    """Passes progress on, but not more often than it can be seen."""

    def __init__(self, voice: Any) -> None:
        self._voice = voice
        self._clock = MonotonicClock()
        self._told = self._clock.now()

    def __call__(self, done: float) -> None:
        now = self._clock.now()
        if now - self._told > PROGRESS_EVERY_S:
            self._told = now
            self._voice.send(("progress", done))


def _times(
    config: Config, blueprint: Any, seconds: float, on_progress: Callable[[float], None]
) -> ForwardTimes:
    from rtagent.inference.latency import draw
    from rtagent.networks import (
        ActingPolicy,
        describe,
        head_of,
        inference_precision,
        resolved_name,
    )

    space, policy, inference = blueprint.observation_space, config.policy, config.inference
    head = head_of(config.learning, blueprint.action_space)
    acting = ActingPolicy(policy, space, blueprint.action_space, head)
    acting.warm_up()
    rng = np.random.default_rng(config.run.seed)
    observation = np.zeros(space.shape, space.dtype)
    clock = MonotonicClock()
    passes: list[float] = []
    start = clock.now()
    before = start
    while before - start < seconds or len(passes) < LEAST_PASSES:
        acting.values(observation)
        after = clock.now()
        passes.append(after - before)
        on_progress(min(1.0, (after - start) / seconds))
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
        network=describe(policy, space, head),
        precision=str(inference_precision(policy, resolved_name(policy, space))).rpartition(".")[2],
        parameters=blueprint.parameters,
        forward_s=forward,
        inference_s=np.maximum(forward, padding),
    )
