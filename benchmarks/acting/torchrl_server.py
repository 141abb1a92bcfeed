"""Acting at x = 5 by TorchRL's inference server, over its shared memory.

One server process answers a request for each tick: what waits is answered together, and a batch of
any size takes as long as one inference, which favours it. The client keeps every request in flight
and executes the newest answer. This is as its documentation shows it; the server does not stagger.
"""

from __future__ import annotations

import queue
import threading
import time
from typing import Any

import numpy as np
import torch

from benchmarks.acting.peer_world import STACK, START_S, TICK_S, X, figures, overheads, tick_loop
from benchmarks.replay.replay_contenders import peer

SLOTS = 64
SERVER = ("torchrl.modules.inference_server", "torchrl")
TENSORS = ("tensordict", "tensordict")


class Slow(torch.nn.Module):
    """A policy that takes five ticks for a batch, and repeats which frames it was given."""

    def forward(self, data: Any) -> Any:
        """`data` with `frame` (B, 4, 84, 84) and `number` (B,); adds `action` (B,)."""
        time.sleep(X * TICK_S)
        return data.set("action", data["frame"][:, -1, 0, 0].long() % 3).exclude("frame")


def torchrl_server(seconds: float) -> dict[str, float]:
    """One server of TorchRL's.

    Raises:
        UserError: TorchRL is not installed.
    """
    servers, tensordict = peer(*SERVER), peer(*TENSORS)
    number, frame = torch.zeros((), dtype=torch.int64), torch.zeros(STACK, dtype=torch.uint8)
    request = tensordict.TensorDict({"frame": frame, "number": number})
    response = tensordict.TensorDict({"action": number, "number": number})
    transport = servers.SharedMemoryTransport(request, response, num_slots=SLOTS)
    client, registered = transport.client(), []
    waiting: queue.SimpleQueue[Any] = queue.SimpleQueue()
    answered, last = [-1], -1

    def receive() -> None:
        while (future := waiting.get()) is not None:
            frame = int(future.result()["number"])
            registered.append((frame, time.monotonic()))
            answered[0] = max(answered[0], frame)

    def choose(tick: int) -> int | None:
        nonlocal last
        before, last = last, answered[0]
        return last if last > before else None

    def publish(tick: int, observation: np.ndarray) -> None:
        waiting.put(client.submit(tensordict.TensorDict({
            "frame": torch.from_numpy(observation), "number": torch.tensor(tick),
        })))

    server = servers.ProcessInferenceServer(
        policy_factory=Slow, transport=transport, max_batch_size=SLOTS, policy_version_key=None,
    )
    with server:
        receiver = threading.Thread(target=receive, daemon=True)
        receiver.start()
        executed, times = tick_loop(time.monotonic() + START_S, seconds, choose, publish)
        waiting.put(None)
        receiver.join()
    return figures(executed, overheads(registered, times, executed))
