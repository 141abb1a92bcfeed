"""`rtagent policy-server`: a checkpoint or a factory is served until SIGTERM."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from openpi_client.websocket_client_policy import WebsocketClientPolicy

from rtagent.cli.policy_server import _print_counts
from rtagent.remote.server import Counts
from tests.cli.conftest import Refused, Run
from tests.ports import free_port
from tests.trained import leave_checkpoint

TOKEN = "secret" * 8
FACTORY = """
import torch
from torch import nn

class Ramp(nn.Module):
    def __init__(self, observation_space, action_space):
        super().__init__()
        self.actions = int(action_space.n)

    def forward(self, observations):
        return torch.arange(self.actions).float().expand(len(observations), -1)

class Chunks(Ramp):
    def forward(self, observations):
        return super().forward(observations)[:, None].expand(-1, 5, -1)

class Counter(Ramp):
    state_size = 1

    def forward(self, observations, states):
        return super().forward(observations), states + 1.0

class Told(Ramp):
    def forward(self, observations, pending):
        return super().forward(observations)

class Distributions(Ramp):
    def forward(self, observations):
        return 1e3 * torch.eye(51)[[0, 50]].expand(len(observations), -1, -1)

class Drawn(nn.Module):
    def __init__(self, observation_space, action_space):
        super().__init__()

    def forward(self, observations):
        return torch.tensor([0.0, -1.0]).expand(len(observations), -1)
"""


@pytest.fixture
def ask(run: Run, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """What a client hears of a server that is then ended: metadata, its answer, the output."""
    monkeypatch.setenv("RTAGENT_REMOTE_TOKEN", TOKEN)

    def ask_it(question: dict[str, np.ndarray], *arguments: str) -> tuple[Any, Any, str]:
        port, heard, over = free_port(), list[Any](), threading.Event()

        def client() -> None:
            end = time.monotonic() + 180.0
            try:
                while not heard and time.monotonic() < end and not over.wait(0.02):
                    try:
                        there = WebsocketClientPolicy("127.0.0.1", port, api_key=TOKEN)
                    except OSError:
                        continue
                    heard.append(there.get_server_metadata())
                    heard.append(there.infer(question))
            finally:
                # After a server that has not even begun, the signal would end the tests.
                if not over.is_set():
                    os.kill(os.getpid(), signal.SIGTERM)

        thread = threading.Thread(target=client)
        thread.start()
        try:
            code, out, err = run("policy-server", *arguments, "--port", str(port), "--json")
        finally:
            over.set()
        thread.join(120.0)
        assert code == 0, err
        return heard[0], heard[1], out

    return ask_it


@pytest.fixture
def _importable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """`FACTORY` is the module `ramp_policy`."""
    (tmp_path / "ramp_policy.py").write_text(FACTORY)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield
    sys.modules.pop("ramp_policy", None)


def test_a_checkpoint_is_served(ask: Callable[..., Any], tmp_path: Path) -> None:
    path = leave_checkpoint(tmp_path, "env.id=Pendulum-v1", "policy.width=1")
    metadata, found, out = ask({"observation": np.zeros((1, 3), np.float32)}, str(path))
    assert metadata["environment"] == "Pendulum-v1"
    assert (metadata["answers"], metadata["outputs"], metadata["updates"]) == ("actions", 1, 7)
    assert found["actions"].shape == (1, 1)
    assert abs(found["actions"]).max() <= 2.0
    assert json.loads(out.splitlines()[0])["address"].startswith("ws://127.0.0.1:")


def test_a_recurrent_checkpoint_is_served_with_its_state(
    ask: Callable[..., Any], tmp_path: Path
) -> None:
    path = leave_checkpoint(
        tmp_path, "env.id=CartPole-v1", "policy.network=lstm", "learning.algorithm=c51"
    )
    metadata, found, _ = ask({"observation": np.ones((1, 4), np.float32)}, str(path))
    assert metadata["policy_state"] == found["policy_state"].size > 0
    assert found["policy_state"].any()
    # The expected ones of the distributions.
    assert found["values"].shape == (2,)


@pytest.mark.usefixtures("_importable")
@pytest.mark.parametrize(("factory", "ticks", "state", "pending"), [
    ("Ramp", 0, 0, 0), ("Chunks", 5, 0, 0), ("Counter", 0, 1, 0), ("Told", 0, 0, 4),
])
def test_a_factory_is_served(
    ask: Callable[..., Any], factory: str, ticks: int, state: int, pending: int
) -> None:
    question = {"observation": np.zeros((1, 4), np.float32)}
    if pending:
        question["pending_actions"] = np.zeros(pending, np.float32)
    metadata, found, _ = ask(
        question, f"ramp_policy:{factory}", "--set", "env.id=CartPole-v1",
        "--set", f"env.pending_actions={pending // 2}",
    )
    assert metadata["answers"] == "values"
    assert (metadata["policy_state"], metadata["pending_actions"]) == (state, pending)
    values = np.array([0.0, 1.0])
    np.testing.assert_array_equal(found["values"], np.tile(values, (ticks, 1)) if ticks else values)
    np.testing.assert_array_equal(found["actions"], [[1]] * max(ticks, 1))
    assert found.get("policy_state", np.zeros(0)).tolist() == [1.0] * state


@pytest.mark.usefixtures("_importable")
@pytest.mark.parametrize(("factory", "algorithm", "environment", "key", "wanted"), [
    ("Distributions", "c51", "CartPole-v1", "values", [-10.0, 10.0]),
    ("Drawn", "sac", "Pendulum-v1", "actions", [[0.0]]),
])
def test_a_factory_whose_network_gives_distributions_answers_with_their_means(
    ask: Callable[..., Any], factory: str, algorithm: str, environment: str, key: str, wanted: Any
) -> None:
    size = {"CartPole-v1": 4, "Pendulum-v1": 3}[environment]
    _, found, _ = ask(
        {"observation": np.zeros((1, size), np.float32)}, f"ramp_policy:{factory}",
        "--set", f"env.id={environment}", "--set", f"learning.algorithm={algorithm}",
    )
    np.testing.assert_allclose(found[key], wanted, atol=1e-6)


@pytest.mark.usefixtures("_importable")
@pytest.mark.parametrize(("setting", "said"), [
    ("policy.device=cuda:99", "policy.device = 'cuda:99': "),
    ("policy.pretrained=/some/where", "policy.pretrained is not served"),
])
def test_what_the_daemon_would_do_and_the_server_cannot_is_refused(
    refused: Refused, setting: str, said: str
) -> None:
    settings = ("--set", "env.id=CartPole-v1", "--set", setting, "--port", "0")
    assert said in refused("policy-server", "ramp_policy:Ramp", *settings)


def test_a_terminal_that_is_stopped_holds_up_no_client(monkeypatch: pytest.MonkeyPatch) -> None:
    printing, served = threading.Event(), threading.Event()

    def stopped(*_: Any, **__: Any) -> None:
        printing.set()
        assert served.wait(30.0), "nothing else was done meanwhile"
        raise BrokenPipeError

    async def serve() -> None:
        counts = Counts()
        lines = asyncio.create_task(_print_counts(counts, as_json=False))
        while not printing.is_set():
            counts.answers += 1
            await asyncio.sleep(0)
        served.set()
        await lines

    monkeypatch.setattr("builtins.print", stopped)
    monkeypatch.setattr("rtagent.cli.policy_server.PERIOD_S", 1e-3)
    asyncio.run(asyncio.wait_for(serve(), 60.0))


def test_a_pipe_that_is_full_gets_no_line(monkeypatch: pytest.MonkeyPatch) -> None:
    # A thread that waited to write it kept the server from ending.
    printed: list[str] = []
    monkeypatch.setattr("builtins.print", lambda line, **_: printed.append(line))
    monkeypatch.setattr("rtagent.cli.policy_server.PERIOD_S", 1e-9)
    end, pipe = os.pipe()
    os.set_blocking(pipe, False)
    filled = os.write(pipe, bytes(1 << 24))

    async def serve() -> None:
        counts = Counts(clients=1)
        lines = asyncio.create_task(_print_counts(counts, as_json=False, stdout=pipe))
        for _ in range(100):
            counts.answers += 1
            await asyncio.sleep(0)
        assert not printed
        os.read(end, filled)
        while not printed:
            counts.answers += 1
            await asyncio.sleep(0)
        lines.cancel()

    asyncio.run(asyncio.wait_for(serve(), 60.0))
    assert printed[0].startswith("1 client, ")
    os.close(end)
    os.close(pipe)
