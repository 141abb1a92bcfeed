"""The whole configuration, and the check that its settings go together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import Field, model_validator

from rtagent.config.acting import InferenceConfig, PolicyConfig
from rtagent.config.environment import EnvConfig
from rtagent.config.learning import ClusterConfig, LearningConfig, R3Config, ReplayConfig
from rtagent.config.operation import RunConfig, ServiceConfig
from rtagent.config.section import Section
from rtagent.errors import UserError

LEAST_SPAN = 1e-6
"""From c51's smallest value to its largest, as a share of the larger amount."""


class Config(Section):
    """The whole configuration."""

    env: EnvConfig = Field(default_factory=EnvConfig)
    policy: PolicyConfig = Field(default_factory=PolicyConfig)
    inference: InferenceConfig = Field(default_factory=InferenceConfig)
    learning: LearningConfig = Field(default_factory=LearningConfig)
    replay: ReplayConfig = Field(default_factory=ReplayConfig)
    r3: R3Config = Field(default_factory=R3Config)
    cluster: ClusterConfig = Field(default_factory=ClusterConfig)
    service: ServiceConfig = Field(default_factory=ServiceConfig)
    run: RunConfig = Field(default_factory=RunConfig)

    @model_validator(mode="after")
    def _check_combinations(self) -> Config:
        policy, learning, capacity = self.policy, self.learning, self.replay.capacity
        if policy.epsilon_end > policy.epsilon_start:
            raise ValueError(
                f"policy.epsilon_end = {policy.epsilon_end} is more than policy.epsilon_start = "
                f"{policy.epsilon_start}; set both"
            )
        if policy.epsilon_schedule == "exponential" and policy.epsilon_end == 0.0:
            raise ValueError(
                "policy.epsilon_end = 0 is never reached with policy.epsilon_schedule = "
                "'exponential'; use a positive one"
            )
        if learning.n_step * 2 > capacity:
            n_step = f"learning.n_step = {learning.n_step}"
            raise ValueError(f"{n_step} does not fit into replay.capacity = {capacity}")
        if learning.learning_starts > capacity // 2:
            raise ValueError(
                f"learning.learning_starts = {learning.learning_starts} is more than half "
                f"of replay.capacity = {capacity}: learning would never start"
            )
        largest = max(1.0, abs(learning.v_min), abs(learning.v_max))
        if learning.v_max - learning.v_min < LEAST_SPAN * largest:
            raise ValueError(
                "learning.v_min must be below learning.v_max, and by a millionth at least, for "
                "float32 hardly tells them apart if they are closer"
            )
        self._check_engine()
        self._check_remote()
        self._check_pretrained()
        self._check_cluster()
        self._check_on_policy()
        self._check_sequential()
        self._check_pending()
        if learning.placement == "auto":
            self.require("learning.placement = 'auto', which plans for processor cores", {
                "learning.device": ["cpu"],
            })
        r3, batch = self.r3, learning.batch_size
        for name in ("deadline_s", "data_budget"):
            if r3.mode != "off" and getattr(r3, name) is None:
                raise ValueError(f"r3.mode = {r3.mode!r} needs r3.{name}")
        if r3.data_budget is not None and r3.data_budget < batch:
            raise ValueError(
                f"r3.data_budget = {r3.data_budget} is smaller than one batch of "
                f"learning.batch_size = {batch}"
            )
        return self

    def _check_engine(self) -> None:
        policy = self.policy
        if policy.engine == "torch" and policy.precision == "int8":
            raise ValueError(
                "policy.precision = 'int8' needs an engine: policy.engine = openvino or auto"
            )
        if policy.engine == "onnxruntime" and policy.precision in ("bfloat16", "int8"):
            raise ValueError(
                f"policy.precision = {policy.precision!r}: ONNX Runtime has only float32 here; use "
                "auto or float32, or policy.engine = openvino"
            )
        if policy.engine != "torch" and policy.device != "cpu":
            raise ValueError(
                f"policy.engine = {policy.engine!r} runs on the CPU, and policy.device is "
                f"{policy.device!r}; set policy.engine = torch, or policy.device = cpu"
            )

    def _check_remote(self) -> None:
        if self.policy.remote is not None:
            remote = f"policy.remote = {self.policy.remote!r}, whose server has network and weights"
            self.require(remote, {
                "learning.processes": [0], "policy.factory": [None], "policy.engine": ["torch"],
            })
            self._check_answers("policy.remote")
            return
        for name in ("remote_state", "remote_hedge"):
            if value := getattr(self.policy, name):
                raise ValueError(
                    f"policy.{name} = {value} is for a policy server; say where it is: "
                    "policy.remote = 'ws://host:port'"
                )

    def _check_pretrained(self) -> None:
        if self.policy.pretrained is not None:
            self.require("policy.pretrained, which only acts, and by itself", {
                "learning.processes": [0], "policy.remote": [None], "policy.engine": ["torch"],
                "env.pending_actions": [0],
            })
            self._check_answers("policy.pretrained")
        elif self.policy.task is not None:
            raise ValueError(
                f"policy.task = {self.policy.task!r} is for policy.pretrained; a policy server is "
                "told by policy.remote_inputs"
            )

    def _check_answers(self, setting: str) -> None:
        """Refuse an algorithm that does not learn from actions, for a policy that gives them."""
        if self.learning.algorithm == "sac":
            raise ValueError(
                f"learning.algorithm = 'sac' does not fit {setting}, which answers with actions, "
                "not with what sac draws them from; use 'auto'"
            )

    def _check_cluster(self) -> None:
        if self.learning.where == "cluster":
            self.require("learning.where = 'cluster', whose gateway is the one process", {
                "learning.processes": [1], "r3.mode": ["off"], "learning.placement": ["off"],
            })

    def _check_on_policy(self) -> None:
        if not self.learning.on_policy:
            return
        algorithm = f"learning.algorithm = {self.learning.algorithm!r}"
        capacity, rollout = self.replay.capacity, self.learning.rollout
        # Each decision takes a tick, or more.
        if rollout * 2 > capacity:
            raise ValueError(
                f"learning.rollout = {rollout} is more than half of replay.capacity = {capacity}: "
                "a rollout could be lost before it is learned from"
            )
        self.require(f"{algorithm}, which learns from what its policy has just done", {
            "learning.where": ["here"], "learning.prioritized": [False],
            "learning.demonstrations": [None], "learning.transitions": ["decision"],
            "r3.mode": ["off"], "policy.chunk": ["newest"],
        })
        if self.policy.epsilon_end == 0.0 and self.learning.processes:
            raise ValueError(
                f"policy.epsilon_end = 0 does not fit {algorithm}: it learns from what it draws, "
                "and at a rate of 0 it draws nothing; use a positive one, which are all alike to it"
            )
        self.require(f"{algorithm}, of which all learners would learn from the same decisions", {
            "learning.processes": [0, 1],
        })

    def _check_sequential(self) -> None:
        if self.inference.sequential:
            algorithm = f"inference.algorithm = {self.inference.algorithm!r}"
            self.require(f"{algorithm}, in which one process acts and one learns by turns", {
                "inference.processes": [1], "learning.processes": [0, 1],
                "learning.where": ["here"],
            })

    def _check_pending(self) -> None:
        if self.env.pending_actions:
            self.require(f"env.pending_actions = {self.env.pending_actions}", {
                "policy.engine": ["torch"], "learning.where": ["here"],
                "learning.transitions": ["decision"], "learning.placement": ["off"],
                "learning.evaluation_every_s": [0.0],
            })
        elif self.policy.chunk == "prefix":
            raise ValueError(
                "policy.chunk = 'prefix' needs env.pending_actions, the actions that the policy is "
                "given; set it to the delay in ticks"
            )

    def require(self, setting: str, needed: Mapping[str, Sequence[Any]]) -> None:
        """Refuse settings that do not go with another one.

        Args:
            setting: the other one, in words.
            needed: the values that go with it, by `section.key`.

        Raises:
            ValueError: names the first setting that has none of these values.
        """
        for name, values in needed.items():
            section, key = name.split(".")
            given = getattr(getattr(self, section), key)
            if given not in values:
                # A file cannot hold None; what is not set is not written.
                use = " or ".join(_written(value) for value in values if value is not None)
                remedy = f"use {use}" if use else "leave it out"
                raise ValueError(f"{name} = {_written(given)} does not fit {setting}; {remedy}")

    @property
    def state_dir(self) -> Path:
        """The state directory with `~` expanded.

        Raises:
            UserError: there is no such home directory.
        """
        try:
            return self.run.state_dir.expanduser()
        except RuntimeError:
            raise UserError(
                f"run.state_dir = {_written(self.run.state_dir)}: there is no such home directory; "
                "set HOME, or choose another with --state-dir"
            ) from None


def _written(value: Any) -> str:
    """A value as a configuration file has it."""
    if isinstance(value, bool):
        return str(value).lower()
    return repr(str(value) if isinstance(value, Path) else value)
