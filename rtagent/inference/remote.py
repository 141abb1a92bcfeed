"""The body of an inference process whose policy is on another machine."""

from __future__ import annotations

import os
from functools import partial

from rtagent.inference.driver import Driver, attend
from rtagent.inference.weights import NoWeights
from rtagent.memory.process_metrics import InferenceRecord
from rtagent.processes.worker import WorkerContext
from rtagent.remote.answers import Terms
from rtagent.remote.policy import RemotePolicy
from rtagent.remote.wire import WebsocketDialer, token_of


def ask_server(context: WorkerContext[InferenceRecord], address: str) -> None:
    """Act by a policy on another machine."""
    dialer = WebsocketDialer(address, token_of(os.environ), context.clock)

    def event(kind: str, **details: object) -> None:
        # All processes lose the same link; the first one reports it.
        if context.index == 0:
            context.event(kind, **details)

    policy = RemotePolicy(
        address, Terms.of(context.blueprint), dialer, context.clock, partial(attend, context),
        context.record, event, context.config.policy.remote_inputs,
        context.config.policy.remote_hedge,
    )
    context.ready()
    Driver(context, policy, NoWeights()).run()
