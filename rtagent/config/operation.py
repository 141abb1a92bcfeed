"""The sections `service` and `run` of the configuration."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from rtagent.config.section import MOST_DISK_MB, MOST_PROCESSES, MOST_SEED, Host, PathName, Section


class ServiceConfig(Section):
    """Where the HTTP service listens."""

    host: str = Field("127.0.0.1", min_length=1)
    """Address to bind."""
    port: int = Field(8008, ge=0, le=65_535)
    """Port to bind; 0 takes a free one."""
    insecure: bool = False
    """Allow a bind to an address other than loopback without TLS."""
    certificate: PathName | None = None
    """PEM file with a certificate and its chain: the service then speaks TLS alone. It is read
    again when the service is restarted."""
    private_key: PathName | None = None
    """PEM file with the certificate's key, without a passphrase. If it is not set, the key is in
    the certificate's file."""
    allowed_hosts: list[Host] = Field(
        default_factory=list, examples=[["hub.example", "127.0.0.1:9000"]]
    )
    """Further names under which browsers and programs may reach the service, for a reverse proxy or
    a forwarded port: `name:port`, or `name` at service.port, 80 and 443."""


class RunConfig(Section):
    """The run as a whole."""

    seed: int = Field(0, ge=0, le=MOST_SEED)
    """Seed of everything that is random."""
    state_dir: PathName = Path("~/.local/state/rtagent")
    """Token, checkpoints, events of this daemon."""
    checkpoint_every_s: float = Field(120.0, ge=1.0)
    """Seconds between two checkpoints; one more is made on stop."""
    keep_checkpoints: int = Field(3, ge=1, le=10_000)
    """The newest checkpoints that are kept, beside the best one."""
    checkpoints_mb: int = Field(16_384, ge=1, le=MOST_DISK_MB)
    """MiB of the checkpoints that are kept; the newest stays in any case."""
    keep_runs: int = Field(100, ge=1, le=100_000)
    """Runs whose folders are kept, this one included: a start removes the oldest. A folder that was
    renamed stays."""
    runs_mb: int = Field(4096, ge=1, le=MOST_DISK_MB)
    """MiB of the runs' folders that are kept."""
    events_mb: int = Field(16, ge=1, le=1024)
    """MiB of events that a run keeps, and of finished episodes (`episodes.csv`); then the oldest
    go."""
    tensorboard_mb: int = Field(1024, ge=1, le=MOST_DISK_MB)
    """MiB of figures for TensorBoard that a run keeps; then the oldest go."""
    checkpoint_replay: bool = False
    """Save the replay with the checkpoint on stop, and restore it at start."""
    tensorboard: bool = True
    """Write the figures of the run for TensorBoard into the state dir."""
    wandb: bool = False
    """Write the figures for Weights & Biases too (extra `wandb`), offline into the run's folder
    unless WANDB_MODE says otherwise."""
    mlflow: bool = False
    """Write the figures for MLflow too (extra `mlflow`), into the run's folder unless
    MLFLOW_TRACKING_URI says otherwise."""
    resume: bool = True
    """Start from the newest checkpoint of the state dir; if not, this run's checkpoints and replay
    take the place of the older ones there."""
    max_processes: Annotated[int, Field(ge=1, le=MOST_PROCESSES)] | Literal["auto"] = "auto"
    """Most inference processes and learners together; auto: 16 and 16 more for each core, as long
    as half of the memory that is free at the start has room for them, but 8 at least."""
    realtime: Literal["auto", "on", "off"] = "auto"
    """SCHED_FIFO and locked memory for the environment process; on: refuse to start without the
    permission."""
