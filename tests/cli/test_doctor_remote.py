"""What `rtagent doctor` says of a remote policy."""

from __future__ import annotations

from typing import Any

from rtagent.cli.doctor_remote import NAMES, remote_policy
from rtagent.config import Config
from rtagent.config_sources import load_config
from tests.ports import free_port
from tests.remote.serving import openpi_like, policy_server, served


def config(address: str) -> Config:
    return load_config(overrides=[
        "env.id=CartPole-v1", f"policy.remote={address}", "learning.processes=0",
    ])


def verdicts(address: str) -> list[tuple[str, str]]:
    found = remote_policy(config(address))
    assert tuple(check.name for check in found) == NAMES
    assert all("\n" not in check.found for check in found)
    return [(check.verdict, check.found) for check in found]


def test_without_a_remote_policy_nothing_is_said() -> None:
    assert remote_policy(load_config(overrides=[])) == []


def test_a_server_whose_policy_fits_or_does_not() -> None:
    with policy_server(served(outputs=2, shape=(1, 4))) as (address, _):
        server, trip, policy = verdicts(address)
        assert server == ("ok", f"{address} answers, and keeps to the protocol")
        assert trip[0] == "ok"
        assert trip[1].endswith(" ms, without computing")
        assert policy == ("ok", "fits env.id = 'CartPole-v1'")
    with policy_server(served(outputs=2, shape=(4, 84, 84))) as (address, _):
        policy = verdicts(address)[2]
        assert policy[0] == "warn"
        assert "sees observations of [4, 84, 84] float32" in policy[1]
    with policy_server(served()) as (address, _):
        policy = verdicts(address)[2]
        assert policy[0] == "warn"
        assert "has 3 actions, and the environment has 2" in policy[1]


def test_what_is_not_known_is_said_to_be_unknown() -> None:
    def infer(question: dict[str, Any]) -> dict[str, Any]:
        return {}

    with openpi_like(infer) as address:
        assert verdicts(address)[2][1].startswith("unknown: the server does not say")
    with openpi_like(infer, metadata=b"no message") as address:
        server, trip, policy = verdicts(address)
        assert (server[0], trip[0], policy) == ("warn", "ok", ("skip", "unknown"))
    server, trip, policy = verdicts(f"ws://127.0.0.1:{free_port()}")
    assert server[0] == "warn"
    assert "refused" in server[1]
    assert trip == policy == ("skip", "unknown")
