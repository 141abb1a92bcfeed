"""Whole runs in virtual time: repeatable to the bit, with the delays and inaction of theory."""

from __future__ import annotations

import errno
import gc
import os
from contextlib import AbstractContextManager, nullcontext
from itertools import cycle, repeat
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from rtagent.config.learning import A2C_DEFAULTS
from rtagent.config_sources import load_config
from rtagent.env.adapter import Adapter
from rtagent.env.reporting_adapter import ReportingAdapter
from rtagent.errors import UserError
from rtagent.evaluation.probe import probe
from rtagent.inference.standby import Standby
from rtagent.learning.device import Device
from rtagent.policy.acting import ActingPolicy
from rtagent.policy.exploration import run_seed
from rtagent.staggering.arbiter import Source
from rtagent.storage import checkpoint
from rtagent.storage.demonstration_file import save_demonstration
from rtagent.virtual import simulation
from tests.conftest import open_descriptors
from tests.recorded import demonstration
from tests.trained import leave_checkpoint
from tests.virtual.pole import POLE, RATE_HZ, pole


def test_two_runs_are_the_same_to_the_bit_and_another_seed_is_another_run() -> None:
    noisy = (
        "inference.processes=5", "learning.processes=2", "learning.prioritized=true",
        "learning.updates_per_tick=0.5", "inference.injected_latency_spread=0.3",
        "inference.injected_latency_distribution=lognormal",
    )
    first, second, other = (pole(*noisy, seed=seed, seconds=6.0) for seed in (3, 3, 4))
    assert first.updates == second.updates > 50
    assert first.rows.tobytes() == second.rows.tobytes() != other.rows.tobytes()
    assert (first.weights == second.weights).all()


@pytest.mark.parametrize(("precision", "acts_in"), [
    ("auto", torch.float32), ("bfloat16", torch.bfloat16),
])
def test_it_acts_in_the_precision_of_its_policy(
    monkeypatch: pytest.MonkeyPatch, precision: str, acts_in: torch.dtype
) -> None:
    found: list[torch.dtype] = []

    def standby(policy: ActingPolicy) -> Standby:
        found.append(next(policy.module.parameters()).dtype)
        return Standby(policy)

    monkeypatch.setattr(simulation, "Standby", standby)
    pole("learning.processes=0", f"policy.precision={precision}", seconds=0.5)
    assert found == [acts_in]


def test_what_is_measured_on_the_machine_decides_nothing() -> None:
    measured = "policy.precision=auto", "learning.precision=auto", "learning.placement=auto"
    found = simulation._settled(load_config(None, [*POLE, *measured], {}), None)
    assert (found.policy.precision, found.learning.precision) == ("float32", "float32")
    assert (found.learning.placement, found.learning.prefetch) == ("off", 0)


def test_an_update_is_measured_where_learners_compute(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a GPU, say, for which the processor stands in."""
    sent: list[int] = []

    def copying() -> AbstractContextManager[object]:
        sent.append(1)
        return nullcontext()

    monkeypatch.setattr(Device, "of", lambda learning: Device(torch.device("cpu"), copying))
    config = load_config(None, POLE, {})
    assert simulation._update_s(config, probe(config)) > 0.0
    assert len(sent) == simulation.REPEATS + 1


def test_inaction_and_delay_are_those_of_the_schedule() -> None:
    quiet = "learning.processes=0"
    staggered = pole(quiet, "inference.processes=5").figures(since_s=2.0)
    assert staggered["inaction_fraction"] == 0.0
    assert set(staggered["delay_ticks"]) == {5}
    assert staggered["interaction_ms"] == pytest.approx(1e3 / RATE_HZ, rel=0.01)
    # An inference is no shorter than is given: six and a half ticks.
    slower = pole(quiet, "inference.processes=8", inference_s=0.13).figures(since_s=2.0)
    assert set(slower["delay_ticks"]) == {7}
    alone = pole(quiet, "inference.processes=1", "inference.algorithm=sequential-infer-learn")
    assert alone.figures()["inaction_fraction"] == pytest.approx(1 - 1 / 4.5, abs=0.02)
    assert alone.figures()["delay_mean"] == pytest.approx(5.0, abs=0.6)


def test_slots_of_whole_ticks_do_not_begin_with_ticks() -> None:
    found = pole(
        "learning.processes=0", "inference.algorithm=maximum-time", "inference.processes=2",
        "inference.injected_latency_ms=40",
    ).figures(since_s=1.0)
    assert found["inaction_fraction"] == 0.0
    assert set(found["delay_ticks"]) == {3}


@pytest.mark.parametrize("fill", [0, 2])
def test_an_action_is_re_used_as_far_ahead_as_fill_says(fill: int) -> None:
    outliers = "latency_distribution=outliers", "latency_spread=0.02"
    found = pole(
        "learning.processes=0", "inference.processes=8", f"inference.fill={fill}",
        *(f"inference.injected_{each}" for each in outliers),
    )
    assert (found.rows["source"] == Source.REUSED).any() == (fill > 0)


def test_adaptive_counts_how_late_a_frame_comes_as_it_does_live(
    monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(simulation, "lateness", lambda *_: repeat(0.2 / RATE_HZ))
    staggered = "learning.processes=0", "inference.processes=2"
    delays = pole(*staggered, "inference.injected_latency_ms=17").figures()["delay_ticks"]
    # 0.85 ticks alone would be promised for the next tick.
    assert delays[2] > 0.95 * sum(delays.values())


def test_sequential_interaction_waits_for_its_updates() -> None:
    alone = ("inference.processes=1", "learning.processes=1")
    after, before, beside = (
        pole(*alone, f"inference.algorithm={name}", update_s=0.095).figures(since_s=5.0)
        for name in ("sequential-infer-learn", "sequential-learn-infer", "unstaggered")
    )
    # Inference and update take nine and a quarter ticks together.
    for each in (after, before):
        assert each["interaction_ms"] == pytest.approx(185.0, rel=0.03)
    assert beside["interaction_ms"] == pytest.approx(90.0, rel=0.03)
    # An update before the action delays it.
    assert (after["delay_mean"], before["delay_mean"]) == pytest.approx((5.0, 9.75), abs=0.6)


def test_learners_take_turns_and_the_pace_is_kept() -> None:
    paced = pole("inference.processes=5", "learning.processes=3", "learning.updates_per_tick=0.5")
    learned_for = len(paced.rows) - 64
    assert paced.updates == pytest.approx(0.5 * learned_for, abs=35)
    # As many updates as they can make: three side by side, each of 60 ms.
    free = pole("learning.processes=3", update_s=0.06)
    assert free.updates == pytest.approx(3 * 8.7 / 0.06, rel=0.05)


@pytest.mark.parametrize(("order", "update_s"), [
    # Two are always ready before the one whose turn it is; or nobody waits.
    ("round-robin", 0.09), ("first-come", 0.05),
])
def test_learners_wait_for_their_turns_where_they_take_turns(order: str, update_s: float) -> None:
    lengths = cycle((0.09, 0.03, 0.03))
    uneven = pole(
        "learning.processes=3", f"learning.order={order}", update_s=lambda size: next(lengths)
    )
    assert uneven.updates == pytest.approx(3 * 8.7 / update_s, rel=0.05)


def test_a_demonstration_is_learned_before_the_first_tick(tmp_path: Path) -> None:
    shown = demonstration(
        (90, 30), environment="CartPole-v1", action_meanings=(),
        frames=np.zeros((120, 4), np.float32), actions=np.zeros(120, np.int32),
    )
    save_demonstration(tmp_path / "play.demo", shown)
    # Shorter than it takes to generate what learning starts with.
    quick = "inference.processes=5"
    found = pole(quick, f"learning.demonstrations={tmp_path}", seconds=1.0)
    assert found.updates > 0 == pole(quick, seconds=1.0).updates
    assert found.rows["tick"].tolist() == list(range(120, 170))
    acted = found.rows["source"] == Source.AGENT
    assert acted.any()
    assert found.rows["observed"][acted].min() >= 119
    told = "demonstration_delay = 5 and demonstration_interval = 200$"
    with pytest.raises(UserError, match=told):
        pole(f"learning.demonstrations={tmp_path}", "learning.demonstration_interval=200")


def test_r3_chooses_batch_sizes_by_the_virtual_time_of_updates() -> None:
    sizes: list[int] = []

    def update_s(size: int) -> float:
        sizes.append(size)
        return 0.01 + size * 1e-4

    budget = ("r3.mode=step", "r3.deadline_s=2", "r3.data_budget=3000")
    pole("inference.processes=5", "learning.processes=1", *budget, seconds=6.0, update_s=update_s)
    # Eight transitions per update are too few for the budget.
    assert sizes[0] == 8
    assert 16 <= np.median(sizes[len(sizes) // 2 :]) <= 64


def test_a_rollout_is_acted_by_all_that_was_learned_from_the_last_one() -> None:
    found = pole(
        "learning.algorithm=ppo", "learning.rollout=64", "inference.processes=5",
        "learning.processes=1", "learning.publish_every=100000",
    )
    assert found.updates > 10
    # Version 1 is what the run began with.
    assert len(np.unique(found.rows["weights_version"])) > 4


def test_a2c_acts_by_new_weights_after_every_short_rollout() -> None:
    found = pole("learning.algorithm=a2c", "inference.processes=5", "learning.processes=1")
    # The first frames of an episode are answered too late to be decisions.
    assert found.updates >= 0.6 * len(found.rows) / A2C_DEFAULTS["rollout"] > 9
    # The newest weights may not have acted yet.
    assert len(np.unique(found.rows["weights_version"])) >= found.updates - 2


def test_what_is_pending_is_all_that_comes_before_an_action() -> None:
    settings = "inference.processes=5", "learning.processes=1", "env.pending_actions=6"
    found, again = (pole(*settings, seconds=4.0) for _ in range(2))
    assert found.rows.tobytes() == again.rows.tobytes()
    assert found.updates > 50
    rows = found.rows[20:]
    assert set(rows["tick"] - rows["observed"]) == {5}
    for place in range(4):
        assert (rows["pending"][4:, place] == rows["action"][place : place - 4]).all()
    # The action itself and later ones are not known.
    assert (rows["pending"][:, 4:] == -1).all()


@pytest.mark.parametrize("pending", [0, 6])
def test_states_come_from_the_newest_inference_that_is_over(pending: int) -> None:
    settings = (
        f"env.pending_actions={pending}",
        "policy.network=lstm", "inference.processes=5", "learning.processes=1",
        "learning.burn_in=4", "learning.sequence=4", "learning.updates_per_tick=0.25",
    )
    found, again = (pole(*settings, seconds=4.0) for _ in range(2))
    for field in ("action", "state", "state_lag", "episode"):
        assert found.rows[field].tobytes() == again.rows[field].tobytes()
    assert found.updates > 20
    # An inference takes 4.5 ticks. The first inferences of an episode begin with zeros.
    rows = found.rows
    starts = np.concatenate([[0], np.flatnonzero(rows["flags"]) + 1])
    acted = rows[rows["source"] == 1]
    seen = acted["observed"]
    since = seen - starts[np.searchsorted(starts, seen, side="right") - 1]
    assert (acted["state_lag"] == np.where(since >= 5, 5, 0)).all()
    assert (acted["state"][acted["state_lag"] == 0] == 0.0).all()
    assert acted["state"][acted["state_lag"] == 5].any(axis=1).all()


def test_what_a_recurrent_policy_does_not_go_with_is_refused() -> None:
    for setting in ("learning.prioritized=true", "learning.transitions=executed"):
        with pytest.raises(UserError, match="carries a state"):
            pole("policy.network=lstm", setting)


def test_returns_are_those_of_the_ledger() -> None:
    found = pole("inference.processes=5", "learning.processes=0")
    assert len(found.returns) == len(found.ends_s) > 5
    # CartPole pays 1 for each tick.
    assert found.returns.sum() == np.flatnonzero(found.rows["flags"])[-1] + 1


def test_what_has_no_virtual_time_is_refused() -> None:
    for setting in ("inference.processes=auto", "learning.where=cluster"):
        with pytest.raises(UserError, match=setting.split("=")[0]):
            pole(setting)
    with pytest.raises(UserError, match=r"policy\.pretrained = 'a\.pt2' .*; leave it out$"):
        pole("policy.pretrained=a.pt2", "learning.processes=0")
    with pytest.raises(UserError, match="seconds of an update = 0"):
        pole(update_s=0.0)
    with pytest.raises(UserError, match="seconds of an inference = 0"):
        pole("inference.injected_latency_ms=0", inference_s=0.0)
    for wrong in (0.0, -0.01, float("nan")):
        with pytest.raises(UserError, match=f"seconds of an update = {wrong:g}"):
            pole("learning.processes=1", update_s=lambda size, wrong=wrong: wrong)
    with pytest.raises(UserError, match=r"run\.seed = 2147483648"):
        pole(seed=2**31)


def test_a_checkpoint_that_is_not_written_is_told(tmp_path: Path) -> None:
    """Without a learner `rtagent simulate --save` left an empty folder, and said nothing."""
    with pytest.raises(UserError, match=r"^learning\.processes = 0: .* no checkpoint"):
        pole("learning.processes=0", seconds=1.0, checkpoint_dir=tmp_path)
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match=r"^cannot write a checkpoint into "):
        pole("learning.processes=1", seconds=1.0, checkpoint_dir=tmp_path / "file")


def test_a_network_that_answers_no_number_is_told_in_one_line(tmp_path: Path) -> None:
    """As one whose weights are none: `rtagent simulate --policy` ended with a traceback."""
    saved = checkpoint.load(leave_checkpoint(tmp_path, *POLE))
    for each in saved.tensors.values():
        each.fill(np.nan)
    spoilt = checkpoint.save(tmp_path / "spoilt", saved)
    with pytest.raises(UserError, match=r"^the network answered \[nan nan\] to frame 0$"):
        pole("learning.processes=0", policy=spoilt, seconds=1.0)


def test_a_network_that_answers_another_number_of_values_is_told_in_one_line(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def values(self: ActingPolicy, *given: object) -> np.ndarray:
        return np.zeros(3, np.float32)

    monkeypatch.setattr(ActingPolicy, "values", values)
    with pytest.raises(UserError, match=r"^the network answered 3 numbers, not 2, to frame 0$"):
        pole("learning.processes=0", seconds=1.0)


def test_a_run_goes_on_from_a_checkpoint_with_what_the_one_before_had_learned(
    tmp_path: Path,
) -> None:
    settings = "inference.processes=2", "learning.processes=1", "learning.publish_every=1"
    first = pole(*settings, seconds=4.0, checkpoint_dir=tmp_path / "first")
    (path,) = tmp_path.glob("first/checkpoint-*")
    saved = checkpoint.load(path)
    assert saved.counters.updates == first.updates > 50
    assert saved.run["config"]["inference"]["processes"] == 2
    online = [each.ravel() for name, each in saved.tensors.items() if name.startswith("online.")]
    assert sorted(np.concatenate(online)) == sorted(first.weights)
    second = pole(*settings, seconds=4.0, policy=path, checkpoint_dir=tmp_path / "second")
    (path,) = tmp_path.glob("second/checkpoint-*")
    saved = checkpoint.load(path)
    assert saved.counters.updates == first.updates + second.updates
    # The optimizer's moments go on, too.
    assert saved.tensors["optimizer.steps"] == saved.counters.updates


def test_a_policy_plays_in_the_world_of_a_live_run(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """It played the episodes of the run before it, and so others than the daemon."""
    seeds: list[int | None] = []

    def reset(adapter: ReportingAdapter, seed: int | None = None) -> Any:
        seeds.append(seed)
        return Adapter.reset(adapter, seed)

    monkeypatch.setattr(ReportingAdapter, "reset", reset)
    path = leave_checkpoint(tmp_path, *POLE)
    pole("learning.processes=0", policy=path, seconds=0.1)
    pole("learning.processes=0", seconds=0.1)
    assert seeds == [run_seed(0, path), 0]


def test_a_run_leaves_nothing_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither memory nor its world, and torch uses as many threads as before."""
    closed, inside = [], []

    class Noting(ReportingAdapter):
        def close(self) -> None:
            closed.append(self)
            super().close()

    def progress(at_s: float) -> None:
        inside.append(torch.get_num_threads())

    monkeypatch.setattr(simulation, "ReportingAdapter", Noting)
    descriptors, threads = open_descriptors(), torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        pole("learning.processes=1", seconds=1.5, progress=progress)
        assert (inside, torch.get_num_threads()) == ([1], 2)
    finally:
        torch.set_num_threads(threads)
    assert len(closed) == 1
    gc.collect()
    assert open_descriptors().items() <= descriptors.items()


def test_memory_is_reserved_for_later_ticks_or_the_run_says_that_there_is_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(*where: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def use_up(at_s: float) -> None:
        monkeypatch.setattr(os, "posix_fallocate", refuse)

    with pytest.raises(UserError, match=r"^no memory for frames: No space left on device"):
        pole("learning.processes=0", seconds=4.0, progress=use_up)


def test_it_can_be_ended_early() -> None:
    seen: list[float] = []
    found = pole("learning.processes=0", progress=lambda at_s: bool(seen.append(at_s)) or at_s > 3)
    assert len(found.rows) == round(seen[-1] * RATE_HZ) < 4 * RATE_HZ + 64
