"""The configuration: which values it takes."""

from __future__ import annotations

from datetime import date, time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError

from rtagent.config import Config, LearningConfig, R3Config
from rtagent.config_sources import load_config, parse_config
from rtagent.errors import UserError
from tests.conftest import refusal
from tests.refused import one_line


@pytest.mark.parametrize(
    "setting",
    [
        "policy.network='vit'", "policy.width=0", "policy.width=1000",
        "policy.factory='nocolon'", "policy.precision='float16'", "policy.device='tpu'",
        "policy.epsilon_start=1.5", "policy.epsilon_steps=0", "inference.processes=0",
        "inference.processes=10000", "inference.processes=-1", "inference.processes=2.5",
        "inference.processes='many'", "inference.algorithm='magic'",
        "inference.algorithm='sequential'", "inference.action_deadline_ms=0", "inference.fill=3",
        "inference.injected_latency_ms=-1", "inference.injected_latency_ms=nan",
        "inference.injected_latency_distribution='flat'", "learning.algorithm='sarsa'",
        "learning.processes=65", "learning.order='last'",
        "learning.batch_size=0", "learning.learning_rate=0", "learning.learning_rate=inf",
        "learning.learning_rate_end_factor=0", "learning.learning_rate_steps=-1",
        "learning.gamma=1.01", "learning.v_min=-1e+39", "learning.v_max=1e+39",
        "learning.device='cuda:x'", "learning.device='cuda:01'", "learning.device='cuda:256'",
        "policy.device='cuda:128'",
        "learning.n_step=0", "learning.demonstration_delay=0",
        "learning.demonstration_delay='soon'", "learning.demonstration_margin=-1",
        "learning.demonstrations=3", "learning.demonstrations=''", "run.state_dir=''",
        "replay.capacity=1", "learning.where='elsewhere'",
        "cluster.name='a b'", "cluster.name=''", "cluster.weights_every=0", "cluster.cache_mb=-1",
        "cluster.emulated_rtt_ms=-1", "cluster.emulated_rtt_ms=10001",
        "cluster.emulated_bandwidth_mbps=0", "cluster.emulated_loss=1", "cluster.replay='cloud'",
        "service.port=70000", "run.seed=-1",
        "run.checkpoint_every_s=0", "run.realtime='maybe'", "env.max_catch_up_ticks=-1",
        "env.rate_hz=0", "env.rate_hz=-60", "env.rate_hz=1e-10", "env.rate_hz=1000000000.0",
        "env.frame_stack=0",
        "env.pending_actions=-1", "env.pending_actions=65", "env.pending_actions=1.5",
    ],
)
def test_a_bad_value_is_one_line_with_field_and_value(setting: str) -> None:
    for given in {setting, setting.replace("'", "")}:
        assert refusal(given).startswith(f"{setting.replace('=', ' = ')}: ")


@pytest.mark.parametrize(
    ("overrides", "named"),
    [
        (("policy.epsilon_start=0.1", "policy.epsilon_end=0.5"), ["epsilon_end", "epsilon_start"]),
        (("learning.v_min=2.0", "learning.v_max=1.0"), ["v_min must be below", "v_max"]),
        (("learning.v_min=1.0", "learning.v_max=1.000000001"), ["a millionth", "float32"]),
        (("learning.v_min=0.0", "learning.v_max=1e-40"), ["a millionth", "float32"]),
        (("replay.capacity=256", "learning.learning_starts=200"), ["learning_starts = 200", "256"]),
        (("replay.capacity=256", "learning.n_step=200"), ["n_step = 200", "256"]),
        (("learning.algorithm=ppo", "learning.rollout=600", "replay.capacity=512",
          "learning.learning_starts=100"),
         ["learning.rollout = 600", "half of replay.capacity = 512"]),
        (("learning.placement=auto", "learning.device=cuda:1"),
         ["learning.device = 'cuda:1'", "processor cores"]),
        (("learning.where=cluster", "learning.processes=2"),
         ["learning.processes = 2", "gateway is the one process"]),
        (("inference.algorithm=sequential-infer-learn", "inference.processes=2"),
         ["inference.processes = 2", "'sequential-infer-learn'", "use 1"]),
        (("inference.algorithm=sequential-learn-infer", "inference.processes=auto"),
         ["inference.processes = 'auto'", "use 1"]),
        (("inference.algorithm=sequential-infer-learn", "inference.processes=1",
          "learning.processes=2"), ["learning.processes = 2", "use 0 or 1"]),
        (("inference.algorithm=sequential-infer-learn", "inference.processes=1",
          "learning.where=cluster"), ["learning.where = 'cluster'", "use 'here'"]),
        (("learning.algorithm=ppo", "learning.processes=2"), ["learning.processes = 2", "'ppo'"]),
        (("learning.algorithm=a2c", "learning.prioritized=true"), ["learning.prioritized", "a2c"]),
        (("learning.algorithm=ppo", "learning.where=cluster"), ["learning.where", "'ppo'"]),
        (("learning.algorithm=ppo", "policy.epsilon_end=0"), ["policy.epsilon_end = 0", "'ppo'"]),
        (("learning.algorithm=ppo", "policy.chunk=ensemble"), ["policy.chunk", "'ppo'"]),
        (("learning.algorithm=ppo", "learning.transitions=executed"),
         ["learning.transitions = 'executed'", "'ppo'", "use 'decision'"]),
        (("learning.algorithm=ppo", "r3.mode=step", "r3.deadline_s=9", "r3.data_budget=900"),
         ["r3.mode = 'step'", "'ppo'"]),
        (("learning.where=cluster", "learning.processes=0"), ["learning.processes = 0"]),
        (("learning.where=cluster", "learning.placement=auto"), ["learning.placement = 'auto'"]),
        (("learning.where=cluster", "r3.mode=step", "r3.deadline_s=9", "r3.data_budget=900"),
         ["r3.mode = 'step'", "learning.where"]),
        (("policy.chunk=prefix",), ["'prefix' needs env.pending_actions"]),
        (("policy.remote_state=8",), ["policy.remote = 'ws://host:port'"]),
        (("policy.remote_hedge=1.5",), ["policy.remote = 'ws://host:port'"]),
    ],
)
def test_combinations_that_cannot_work(overrides: tuple[str, ...], named: list[str]) -> None:
    message = refusal(*overrides)
    for part in named:
        assert part in message


def test_a_policy_that_draws_its_actions_may_act_greedily_where_nobody_learns() -> None:
    greedy = ["learning.algorithm=ppo", "policy.epsilon_end=0", "learning.processes=0"]
    assert load_config(None, greedy, {}).policy.epsilon_end == 0.0


@pytest.mark.parametrize(("setting", "named"), [
    ("env.kwargs={ healthy_z_range = [0.7, inf] }", "healthy_z_range has inf"),
    ("env.kwargs={ a = [{ b = -inf }] }", "a.b has -inf"),
    ("env.kwargs.speed=nan", "speed has nan"),
])
def test_what_json_cannot_hold_is_refused_in_arguments_of_the_environment(
    setting: str, named: str
) -> None:
    message = refusal(setting)
    assert message.startswith(f"env.kwargs: {named}, which")
    assert "1e308" in message


@pytest.mark.parametrize(("given", "named"), [
    ({"since": date(2030, 1, 2)}, "since is of type date"),
    ({"a": [{"at": time(7)}]}, "a.at is of type time"),
    ({"size": np.int64(3)}, "size is of type int64"),
    ({"names": {"x"}}, "names is of type set"),
])
def test_what_json_would_change_is_refused_in_arguments_of_the_environment(
    given: dict[str, Any], named: str
) -> None:
    with pytest.raises(UserError, match=f"^env.kwargs: {named}, which .*; give a text, a number"):
        load_config({"env": {"kwargs": given}}, environ={})


def test_a_cluster_s_section_may_be_complete() -> None:
    config = load_config(
        None,
        ["learning.where=cluster", "cluster.address=10.0.0.1:6379", "cluster.cache_mb=0",
         "cluster.emulated_rtt_ms=200", "cluster.emulated_bandwidth_mbps=4.5",
         "cluster.emulated_loss=0.01"],
        {},
    )
    assert config.cluster.address == "10.0.0.1:6379"
    assert (config.cluster.name, config.cluster.weights_every) == ("rtagent", 16)
    assert load_config(None, ["cluster.emulated_loss=0.5"], {}).learning.where == "here"


@pytest.mark.parametrize("address", [
    "", "auto", "host", "host:", ":6379", "host:x", "host:0", "host:99999", "host:-1", "ray://",
    "ray://host:10001", "not an address", "not an address:6379", "host:63 79", "host:6379/",
    "a@b:1", "::1:6379", "[::1]", "[host]:6379", "host:6379\n", "host:\u0666",
])
def test_what_is_no_address_of_a_cluster_is_refused_with_what_to_write(address: str) -> None:
    told = refusal(cluster={"address": address})
    assert told.startswith(f"cluster.address = {address!r}: ")
    assert "HOST:PORT of the cluster's head, such as 10.0.0.1:6379" in told


@pytest.mark.parametrize(
    "address", ["10.0.0.1:6379", "head:1", "a-b.example:65535", "[fd00::1]:6379"]
)
def test_what_is_an_address_of_a_cluster(address: str) -> None:
    assert load_config(None, [f"cluster.address={address}"], {}).cluster.address == address


def test_a_port_that_there_is_not_is_refused() -> None:
    for port in (0, 65_536, 99_999):
        told = refusal(f'service.allowed_hosts=["hub", "hub:{port}"]')
        assert told == f"service.allowed_hosts = 'hub:{port}': the port must be 1 to 65535"
    hosts = ["hub", "hub:1", "[::1]", "[::1]:65535"]
    given = load_config({"service": {"allowed_hosts": hosts}}, environ={})
    assert given.service.allowed_hosts == hosts


def test_the_configuration_cannot_be_changed() -> None:
    with pytest.raises(ValidationError, match="frozen"):
        Config().inference.processes = 3  # type: ignore[misc]


def test_the_home_directory_is_expanded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/someone")
    assert Config().state_dir == Path("/home/someone/.local/state/rtagent")


def test_a_home_directory_that_is_not_there_is_refused_in_one_line() -> None:
    """`Runtime` raised a RuntimeError, where a container runs as a user without a name."""
    with one_line("run.state_dir = '~nobody-of-this-name/runs': .*set HOME, or .*--state-dir"):
        load_config(None, ["run.state_dir=~nobody-of-this-name/runs"], {}).state_dir  # noqa: B018


def test_values_survive_a_dump() -> None:
    config = load_config(None, ["env.kwargs={ a = 1 }", "policy.factory=a.b:c"], {})
    assert parse_config(config.model_dump(mode="json")) == config


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("policy.engine", "openvino"), ("learning.transitions", "executed"),
        ("learning.placement", "auto"), ("learning.evaluation_every_s", 60.0),
        ("learning.where", "cluster"),
    ],
)
def test_what_knows_nothing_of_pending_actions_is_refused(name: str, value: Any) -> None:
    section, key = name.split(".")
    values: dict[str, Any] = {"env": {"pending_actions": 6}, section: {key: value}}
    values.setdefault("learning", {})["processes"] = 1
    with pytest.raises(ValidationError, match=f"{name} = .* does not fit env.pending_actions = 6"):
        Config.model_validate(values)


@pytest.mark.parametrize(("settings", "said", "remedy"), [
    (["learning.algorithm=ppo", "learning.prioritized=true"],
     "learning.prioritized = true does not fit", "; use false"),
    (["learning.algorithm=ppo", "learning.demonstrations=a/b.demo"],
     "learning.demonstrations = 'a/b.demo' does not fit", "; leave it out"),
    (["policy.remote=ws://there:8000", "learning.processes=0", "policy.factory=a:b"],
     "policy.factory = 'a:b' does not fit", "; leave it out"),
])
def test_a_refusal_has_values_that_can_be_written(
    settings: list[str], said: str, remedy: str,
) -> None:
    """`None` would be taken for a path or a name."""
    message = refusal(*settings)
    assert said in message
    assert message.endswith(remedy)


@pytest.mark.parametrize("setting", [
    "learning.processes=1", "policy.factory=a:b", "policy.engine=auto", "learning.algorithm=sac",
])
def test_a_policy_server_leaves_no_room_for_a_network_here(setting: str) -> None:
    settings = ["policy.remote=ws://there:8000", "learning.processes=0", setting]
    message = refusal(*settings)
    assert setting.partition("=")[0] in message
    assert "policy.remote" in message
    assert load_config(None, settings[:2], {}).policy.remote == "ws://there:8000"


@pytest.mark.parametrize("address", [
    "http://there:8000", "ws://", "there:8000", "ws://a b", "ws://there:x", "ws://there:-1",
    "ws://there:0", "ws://there:65536", "ws://[::1", "ws://:8000",
])
def test_what_is_no_address_of_a_policy_server_is_refused_with_what_to_write(address: str) -> None:
    told = refusal(f"policy.remote={address}")
    assert told.startswith(f"policy.remote = {address!r}: must be ws://HOST:PORT or wss://HOST:PORT")


def test_a_policy_server_may_carry_a_state_and_be_told_what_is_pending() -> None:
    settings = ["policy.remote=ws://there:8000", "policy.remote_state=8", "learning.processes=0"]
    assert load_config(None, [*settings, "env.pending_actions=2"], {}).policy.remote_state == 8


@pytest.mark.parametrize("number", [2**64, -(2**63) - 1])
def test_an_input_of_a_policy_server_that_no_request_can_carry_is_refused(number: int) -> None:
    # Each request failed, and the inference process with it.
    told = refusal(f"policy.remote_inputs={{ seed = {number} }}")
    assert told == "policy.remote_inputs: seed must be a whole number of 64 bits, or have a point"
    for fits in (2**64 - 1, -(2**63), float(number)):
        inputs = {"seed": fits}
        assert parse_config({"policy": {"remote_inputs": inputs}}).policy.remote_inputs == inputs


@pytest.mark.parametrize(("inputs", "said"), [
    ({"prompt": "t\udce4"}, "'prompt' and its value must be text in UTF-8"),
    ({"t\udce4": 1}, "'t\\udce4' and its value must be text in UTF-8"),
    ({"observation": 1}, "observation is what the policy sees, and cannot be set"),
])
def test_an_input_of_a_policy_server_that_would_not_arrive_is_refused(
    inputs: dict[str, Any], said: str
) -> None:
    assert refusal(policy={"remote_inputs": inputs}) == f"policy.remote_inputs: {said}"


def test_r3_asks_for_as_many_good_episodes_as_its_paper() -> None:
    assert R3Config().target_episodes == 10


def test_a2c_has_short_rollouts_unless_others_are_set() -> None:
    found = LearningConfig(algorithm="a2c")
    assert (found.rollout, found.publish_every) == (32, 1)
    assert LearningConfig(algorithm="ppo").rollout == LearningConfig().rollout == 512
    assert LearningConfig(algorithm="a2c", rollout=64, publish_every=10).rollout == 64
    # A configuration that is written down whole and read again stays what it is.
    assert LearningConfig.model_validate(found.model_dump()) == found


def test_the_step_size_falls_in_a_straight_line_and_stays() -> None:
    falling = LearningConfig(
        learning_rate=8e-4, learning_rate_steps=100, learning_rate_end_factor=0.5
    )
    found = [falling.step_size(updates) for updates in (0, 25, 50, 100, 101, 10**9)]
    assert found == pytest.approx([8e-4, 7e-4, 6e-4, 4e-4, 4e-4, 4e-4], rel=1e-12)
    constant = LearningConfig(learning_rate=8e-4, learning_rate_end_factor=0.5)
    assert constant.step_size(0) == constant.step_size(10**9) == 8e-4


@pytest.mark.parametrize(
    ("algorithm", "size"), [("dqn", 100), ("ppo", 64), ("a2c", 64), ("auto", 100)]
)
def test_no_update_is_of_more_than_a_rollout_and_one_of_a2c_of_all(
    algorithm: str, size: int
) -> None:
    assert LearningConfig(algorithm=algorithm, batch_size=100, rollout=64).update_size == size
    small = LearningConfig(algorithm=algorithm, batch_size=16, rollout=64)
    assert small.update_size == (64 if algorithm == "a2c" else 16)
