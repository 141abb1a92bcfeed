"""Weights & Biases and MLflow (extras `wandb` and `mlflow`), as `sinks.py` uses them.

Nothing leaves the machine unless environment variables of the user say so: W&B is offline without
WANDB_MODE, and MLflow writes into the run's folder without MLFLOW_TRACKING_URI.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from rtagent.telemetry.points import Library, Point


class WandbRun:
    """One run of Weights & Biases, which a restarted recorder continues.

    Args:
        run_dir: of the run; W&B's run gets the same name.
        config: shown beside the curves.
    """

    def __init__(self, run_dir: Path, config: Mapping[str, Any]) -> None:
        os.environ.setdefault("WANDB_ERROR_REPORTING", "false")
        import wandb

        self._run: Any = wandb.init(
            project=os.environ.get("WANDB_PROJECT", "rtagent"), id=run_dir.name, name=run_dir.name,
            dir=run_dir, mode=os.environ.get("WANDB_MODE", "offline"), resume="allow",
            config=dict(config), settings=wandb.Settings(silent=True, console="off"),
        )
        # Episodes come after figures of later ticks, and W&B's own step must not decrease.
        self._run.define_metric("*", step_metric="tick")

    def write(self, points: Sequence[Point]) -> None:
        for point in points:
            self._run.log({**point.values, "tick": point.step, "_timestamp": point.wall_time})

    def close(self) -> None:
        self._run.finish()


class MlflowRun:
    """One run of MLflow, which a restarted recorder continues.

    Args:
        run_dir: of the run; MLflow's run gets the same name.
        config: stored as parameters.
    """

    def __init__(self, run_dir: Path, config: Mapping[str, Any]) -> None:
        os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
        # MLflow's database would need SQLAlchemy and Alembic; its file store does not.
        os.environ.setdefault("MLFLOW_ALLOW_FILE_STORE", "true")
        import mlflow
        from mlflow.entities import Metric, Param

        self._metric: Any = Metric
        where = os.environ.get("MLFLOW_TRACKING_URI") or (run_dir / "mlflow").absolute().as_uri()
        self._client: Any = mlflow.MlflowClient(where)
        name = os.environ.get("MLFLOW_EXPERIMENT_NAME", "rtagent")
        found = self._client.get_experiment_by_name(name)
        experiment = found.experiment_id if found else self._client.create_experiment(name)
        runs = self._client.search_runs(
            [experiment], f"attributes.run_name = '{run_dir.name}'", max_results=1
        )
        if runs:
            self._id = runs[0].info.run_id
            return
        self._id = self._client.create_run(experiment, run_name=run_dir.name).info.run_id
        params = [Param(key, str(value)[:500]) for key, value in _flat(config)]
        for at in range(0, len(params), 100):
            self._client.log_batch(self._id, params=params[at : at + 100])

    def write(self, points: Sequence[Point]) -> None:
        metrics = [
            self._metric(name, value, round(point.wall_time * 1000), point.step)
            for point in points for name, value in point.values.items()
        ]
        # The protocol takes at most 1000 at once.
        for at in range(0, len(metrics), 1000):
            self._client.log_batch(self._id, metrics=metrics[at : at + 1000])

    def close(self) -> None:
        self._client.set_terminated(self._id)


LIBRARIES: dict[str, Callable[[Path, Mapping[str, Any]], Library]] = {
    "wandb": WandbRun, "mlflow": MlflowRun,
}


def _flat(config: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """The settings of nested sections, `section.key`."""
    for name, value in config.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield prefix + name, value
