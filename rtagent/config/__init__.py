"""The configuration: its sections, their keys, and what they mean.

Every model is frozen and refuses unknown keys; every field carries its description, so that
`rtagent config schema` is the reference manual. A field marked `live` can change while the daemon
runs: all interfaces and the shared memory follow from the mark (`live_config.py`), and what reads
the field reads it from the desired state. Nothing here imports torch or touches the machine.
"""

from __future__ import annotations

from rtagent.config.acting import InferenceConfig, PolicyConfig
from rtagent.config.configuration import Config
from rtagent.config.environment import EnvConfig
from rtagent.config.learning import ClusterConfig, LearningConfig, R3Config
from rtagent.config.section import (
    GAME_BOY_HZ,
    LEARNING_PRECISIONS,
    MAX_INFERENCE_PROCESSES,
    MAX_LEARNERS,
    MOST_BATCH,
    MOST_SEED,
    Merging,
    Precision,
    R3Mode,
)

__all__ = [
    "ClusterConfig",
    "Config",
    "EnvConfig",
    "GAME_BOY_HZ",
    "InferenceConfig",
    "LEARNING_PRECISIONS",
    "LearningConfig",
    "MAX_INFERENCE_PROCESSES",
    "MAX_LEARNERS",
    "MOST_BATCH",
    "MOST_SEED",
    "PolicyConfig",
    "Merging",
    "Precision",
    "R3Config",
    "R3Mode",
]
