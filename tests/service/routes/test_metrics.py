"""The Prometheus page."""

from __future__ import annotations

import re
from typing import Any

import pytest
from starlette.testclient import TestClient

from rtagent.telemetry.figures.cluster import Cluster
from rtagent.telemetry.figures.declaration import example
from service.routes.metrics import prometheus_text
from tests.service.conftest import example_stats, role

SAMPLE = re.compile(r'^([a-z_0-9]+)(\{(?:[a-z_]+="(?:[^"\\\n]|\\.)*",?)*\})? (\S+)$')


def samples(text: str) -> dict[str, float]:
    """The value of each series; also checks the format."""
    found: dict[str, float] = {}
    described: set[str] = set()
    typed: dict[str, str] = {}
    current = ""
    for line in text.splitlines():
        if line.startswith("# "):
            _, word, name, rest = line.split(" ", 3)
            assert name not in (described if word == "HELP" else typed), f"{name} twice"
            if word == "HELP":
                assert re.fullmatch(r"(?:[^\\]|\\[n\\])+", rest), line
                described.add(name)
            else:
                assert word == "TYPE"
                assert (rest == "counter") == name.endswith("_total"), line
                assert rest in ("counter", "gauge")
                typed[name] = rest
            current = name
            continue
        match = SAMPLE.match(line)
        assert match, line
        assert match[1] == current, f"{line} is not in its group"
        assert match[1] + (match[2] or "") not in found, line
        found[match[1] + (match[2] or "")] = float(match[3])
    assert text == "" or text.endswith("\n")
    assert described == set(typed)
    return found


def test_page(client: TestClient) -> None:
    answer = client.get("/metrics")
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    found = samples(answer.text)
    assert found["rtagent_ticks_total"] == 18_000
    assert found["rtagent_clock_drift_seconds"] == pytest.approx(0.00008)
    assert found['rtagent_tick_lateness_seconds{quantile="0.99"}'] == pytest.approx(95e-6)
    assert found['rtagent_actions_total{source="default"}'] == 80
    assert found["rtagent_inaction_60s_ratio"] == 0.002
    assert found['rtagent_inference_worker_latency_seconds{worker="1",quantile="0.5"}'] == 0.0819
    assert found['rtagent_state{state="running"}'] == 1
    assert found['rtagent_state{state="failed"}'] == 0
    assert found["rtagent_learning_paused"] == 0
    assert found['rtagent_process_running{role="learner",index="0"}'] == 1
    assert found['rtagent_regret{of="inaction",kind="bound",unit="reward"}'] == 160.0


def test_unknown_is_left_out() -> None:
    stats = example_stats()
    stats["learning"]["loss"] = None
    found = samples(prometheus_text(stats, {}))
    assert "rtagent_learning_loss" not in found
    assert not any(name.startswith("rtagent_regret{of=\"delay\"") for name in found)
    assert not any(name.startswith("rtagent_r3_deadline") for name in found)


def test_learners_one_by_one() -> None:
    stats = example_stats()
    stats["learning"]["workers"] = [
        {"index": 0, "pid": 5, "state": "running", "restarts": 1, "update_ms": 12.5, "applied": 40},
        {"index": 1, "pid": None, "state": "backoff", "restarts": 2, "update_ms": None},
    ]
    found = samples(prometheus_text(stats, {}))
    assert found['rtagent_learner_worker_update_seconds{worker="0"}'] == 0.0125
    assert found['rtagent_learner_worker_applied_total{worker="0"}'] == 40
    assert found['rtagent_learner_worker_restarts_total{worker="1"}'] == 2
    assert 'rtagent_learner_worker_applied_total{worker="1"}' not in found


def test_a_cluster_with_its_nodes() -> None:
    without = prometheus_text(example_stats(), {})
    assert "cluster" not in without
    stats = example_stats() | {"cluster": example(Cluster)}
    found = samples(prometheus_text(stats, {}))
    assert found["rtagent_cluster_connected"] == 1
    assert found['rtagent_cluster_sample_bytes{direction="up"}'] == 15_204
    assert found['rtagent_cluster_node_generated_total{node="robot-1"}'] == 61_440
    assert found["rtagent_cluster_emulated_round_trip_seconds"] == pytest.approx(0.2)
    stats["cluster"]["emulated"] = None
    assert "cluster_emulated" not in prometheus_text(stats, {})


def test_quantiles_share_one_help() -> None:
    lines = prometheus_text(example_stats(), {}).splitlines()
    helps = [line for line in lines if line.startswith("# HELP rtagent_tick_lateness_seconds ")]
    assert helps == ["# HELP rtagent_tick_lateness_seconds Lateness of a tick against its due "
                     "time; quantiles, at most of the last 60 s."]


def test_nothing_known_at_all() -> None:
    assert not any(name.startswith("rtagent_clock") for name in samples(prometheus_text({}, {})))


def test_labels_are_escaped() -> None:
    status: dict[str, Any] = {"run_id": 'a"b\\c\nd', "roles": [role("x", 0, restarts=float("nan"))]}
    text = prometheus_text({}, status)
    assert r'run_id="a\"b\\c\nd"' in text
    assert "rtagent_process_restarts_total{" in text


@pytest.mark.parametrize("count", [2**31 + 1, 1_234_567_890_123, 2**53 - 1])
def test_large_counts_and_sizes_keep_all_their_digits(count: int) -> None:
    stats = example_stats()
    stats["learning"]["samples_consumed"] = stats["replay"]["bytes"] = count
    lines = prometheus_text(stats, {}).splitlines()
    assert f"rtagent_learning_samples_total {count}" in lines
    assert f"rtagent_replay_bytes {count}" in lines
