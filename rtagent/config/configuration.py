"""The whole configuration, and which of its settings go together."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field, model_validator

from rtagent.config.acting import InferenceConfig, PolicyConfig
from rtagent.config.environment import EnvConfig
from rtagent.config.learning import ClusterConfig, LearningConfig, R3Config, ReplayConfig
from rtagent.config.operation import RunConfig, ServiceConfig
from rtagent.config.section import Section


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
    def _combinations(self) -> Config:
        policy, learning, capacity = self.policy, self.learning, self.replay.capacity
        if policy.epsilon_end > policy.epsilon_start:
            raise ValueError("policy.epsilon_end must not exceed policy.epsilon_start")
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
        if learning.v_min >= learning.v_max:
            raise ValueError("learning.v_min must be below learning.v_max")
        self._check_engine()
        self._check_cluster()
        self._check_on_policy()
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
                "policy.precision = 'int8' needs an engine: policy.engine = openvino, onnxruntime "
                "or auto"
            )
        if policy.engine == "onnxruntime" and policy.precision == "bfloat16":
            raise ValueError(
                "policy.precision = 'bfloat16': ONNX Runtime has none on a CPU; use auto, float32 "
                "or int8"
            )
        if policy.engine != "torch" and policy.device != "cpu":
            raise ValueError(
                f"policy.engine = {policy.engine!r} runs on the CPU, and policy.device is "
                f"{policy.device!r}; set policy.engine = torch, or policy.device = cpu"
            )

    def _check_cluster(self) -> None:
        if self.learning.where == "here":
            return
        if self.learning.processes != 1:
            raise ValueError(
                f"learning.processes = {self.learning.processes} does not fit learning.where = "
                "'cluster', which needs 1: the gateway is the one process"
            )
        if self.r3.mode != "off":
            raise ValueError(
                f"r3.mode = {self.r3.mode!r} does not fit learning.where = 'cluster', which needs "
                "'off'"
            )

    def _check_on_policy(self) -> None:
        learning = self.learning
        if learning.algorithm not in ("ppo", "a2c"):
            return
        for name, given, needed in (
            ("learning.where", learning.where, "here"),
            ("learning.prioritized", learning.prioritized, False),
            ("learning.demonstrations", learning.demonstrations, None),
            ("r3.mode", self.r3.mode, "off"),
        ):
            if given != needed:
                raise ValueError(
                    f"{name} = {given!r} does not fit learning.algorithm = "
                    f"{learning.algorithm!r}, which learns from what its policy has just done; "
                    f"use {needed!r}"
                )
        if learning.processes > 1:
            raise ValueError(
                f"learning.processes = {learning.processes} does not fit learning.algorithm = "
                f"{learning.algorithm!r}: all learners would learn from the same decisions; use 1"
            )

    @property
    def state_dir(self) -> Path:
        """The state directory with `~` expanded."""
        return self.run.state_dir.expanduser()
