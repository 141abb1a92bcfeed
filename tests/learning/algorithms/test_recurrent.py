"""Replayed sequences give the outputs of acting, and their loss is that of the equation.

An agent with three interleaved states acts: the inference on frame f begins with the new state of
that on frame f - 3, or with zeros after a reset, and its action is executed two ticks later. On a
few frames a second process makes an inference, too, whose action is never executed.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import Tensor, nn

from rtagent.config import LearningConfig, PolicyConfig, Precision
from rtagent.learning import precision as precisions
from rtagent.learning.algorithms import recurrent
from rtagent.learning.algorithms.recurrent import RecurrentValueLearning, unroll
from rtagent.learning.replay.sequences import SequenceBatch, SequenceReplay, SequenceShape, blank
from rtagent.learning.shared_update import SharedUpdate
from rtagent.memory.ledger import TERMINATED, TRUNCATED
from rtagent.memory.policy_states import UNKNOWN_LAG, Beginning
from rtagent.policy.networks import build, head_of
from rtagent.policy.recurrent import state_size_of
from rtagent.staggering.arbiter import Source
from tests.conftest import make_blueprint
from tests.rows import private_rings, write_row

SPACE = spaces.Box(-1.0, 1.0, (1, 2), np.float32)
ACTIONS = spaces.Discrete(3)
CAPACITY = 256
TICKS = 120
LAG, DELAY = 3, 2
ENDS = {30: TERMINATED, 61: TRUNCATED, 95: TERMINATED}
UNEXECUTED = (44, 78)
TWICE = (40, 70)
COUNT = 120
LEARNING = LearningConfig(
    algorithm="double-dqn", burn_in=4, sequence=6, n_step=3, gamma=0.9, batch_size=24
)


class Acted:
    """The acting of an agent, and the rings that have recorded it.

    Attributes:
        answers: outputs of the network, by frame.
        begun: the state with which each inference began.
        left: the state after each inference.
        starts: first frame of the episode of each frame.
        rows: reward and action of each tick.
    """

    def __init__(self, learning: LearningConfig) -> None:
        torch.manual_seed(3)
        head = head_of(learning, ACTIONS)
        self.network = build(PolicyConfig(network="lstm"), SPACE, ACTIONS, head)
        size = state_size_of(self.network)
        self.blueprint = replace(
            make_blueprint(frame_shape=(2,), frame_stack=1), frame_dtype="float32",
            observation_space=SPACE, action_space=ACTIONS, state_size=size,
        )
        self.frames, self.ledger = private_rings(self.blueprint, CAPACITY)
        self.rng = np.random.default_rng(5)
        self.answers: dict[int, torch.Tensor] = {}
        self.begun: dict[int, Beginning] = {}
        self.left: dict[int, np.ndarray] = {}
        self.left_by_other: dict[int, np.ndarray] = {}
        self.starts: dict[int, int] = {}
        self.rows: dict[int, tuple[float, int]] = {}
        self._play()

    def _play(self) -> None:
        episode = start = 0
        for tick in range(TICKS):
            observed = tick - DELAY
            acts = observed >= 0 and observed not in UNEXECUTED
            flags = ENDS.get(tick, 0)
            action, reward = int(self.rng.integers(3)), float(self.rng.normal())
            write_row(
                self.ledger, tick, observed=observed if acts else -1, reward=reward,
                episode=episode, source=Source.AGENT if acts else Source.DEFAULT, flags=flags,
                action=action, beginning=self.begun[observed] if acts else None,
            )
            self.rows[tick] = reward, action
            frame = self.rng.normal(size=2).astype(np.float32)
            self.frames.publish(tick, frame, start)
            self._infer(tick, start, frame)
            if flags:
                episode, start = episode + 1, tick + 1

    def _infer(self, frame: int, start: int, values: np.ndarray) -> None:
        state = np.zeros(self.blueprint.state_size, np.float32)
        self.begun[frame], self.starts[frame] = Beginning(0, state), start
        if frame - LAG >= start:
            self.begun[frame] = Beginning(LAG, self.left[frame - LAG], 0)
        if frame - LAG in TWICE:
            self.begun[frame] = Beginning(LAG, self.left_by_other[frame - LAG], 1)
        self.answers[frame], self.left[frame] = self._answer(values, self.begun[frame].state)
        if frame in TWICE:
            self.left_by_other[frame] = self._answer(values, state)[1]

    def _answer(self, values: np.ndarray, state: np.ndarray) -> tuple[torch.Tensor, np.ndarray]:
        observations, states = torch.from_numpy(values)[None, None], torch.from_numpy(state)[None]
        with torch.no_grad():
            answer, left = self.network(observations, states)
        return answer[0], left[0].numpy()

    def replay(self, learning: LearningConfig) -> SequenceReplay:
        replay = SequenceReplay(self.frames, self.ledger, learning)
        replay.catch_up()
        return replay


def sampled(acted: Acted, learning: LearningConfig = LEARNING, count: int = 24) -> Any:
    batch = acted.replay(learning).sample(count, np.random.default_rng(1))
    assert isinstance(batch, SequenceBatch)
    return batch


def frames_of(acted: Acted, batch: SequenceBatch) -> list[int]:
    """The frames of the steps, recognised by their pixels."""
    known = {acted.frames.frames[frame].tobytes(): frame for frame in range(TICKS)}
    return [known[each.numpy().tobytes()] for each in batch.observations[:, 0]]


def test_unrolling_gives_the_outputs_of_acting() -> None:
    acted = Acted(LEARNING)
    batch = sampled(acted, count=200)
    frames = frames_of(acted, batch)
    wanted = torch.stack([acted.answers[frame] for frame in frames])
    torch.testing.assert_close(unroll(acted.network, batch).detach(), wanted)
    assert set(np.unique(batch.parents)) >= {-1, 0, 1}
    # Strands go on behind actions that were never executed, and begin anew after a reset.
    assert {frame + LAG for frame in (*UNEXECUTED, *TWICE)} <= set(frames)
    assert {31, 62, 96} <= set(frames)


def test_burnt_in_states_follow_the_newest_weights_and_stored_ones_do_not() -> None:
    acted = Acted(LEARNING)
    batch = sampled(acted, count=200)
    with torch.no_grad():
        for each in acted.network.parameters():
            each.add_(0.05)
        found = unroll(acted.network, batch).view(*batch.parents.shape, -1)
    # By the slow way: each step by itself, through the steps before it.
    for row, parents in enumerate(batch.parents.tolist()):
        observations = batch.observations.view(*batch.parents.shape, 1, 2)[row]
        left: list[torch.Tensor] = []
        for at, parent in enumerate(parents):
            begun = left[parent] if parent >= 0 else batch.starts[row, at][None]
            with torch.no_grad():
                answer, after = acted.network(observations[at][None], begun)
            left.append(after)
            torch.testing.assert_close(answer[0], found[row, at])


@pytest.mark.parametrize("algorithm", ["dqn", "double-dqn", "c51"])
def test_the_loss_is_that_of_the_equation(algorithm: Any) -> None:
    learning = LEARNING.model_copy(update={"algorithm": algorithm, "atoms": 5})
    acted = Acted(learning)
    batch = sampled(acted, learning, COUNT)
    algorithm_ = RecurrentValueLearning(acted.network, learning)
    loss, errors = algorithm_.compute_gradient(batch)
    assert len(errors) == len(batch.actions) == COUNT
    assert all(each.grad is not None for each in acted.network.parameters())
    if algorithm == "c51":
        assert np.isfinite(loss)
        return
    frames, total = frames_of(acted, batch), 0.0
    for number, place in enumerate(batch.learned.tolist()):
        frame = frames[place]
        sequence = frames[place - place % batch.parents.shape[1] :][: batch.parents.shape[1]]
        target = slow_target(acted, frame, sequence, learning)
        if target is None:
            assert batch.weights[number] == 0.0
            continue
        assert batch.weights[number] == 1.0
        action = acted.rows[frame + DELAY][1]
        error = abs(target - float(acted.answers[frame][action]))
        total += 0.5 * error * error if error < 1.0 else error - 0.5
    assert 0.0 < batch.weights.mean() < 1.0
    assert loss == pytest.approx(total / COUNT, rel=1e-4)


@pytest.mark.parametrize(("precision", "limit"), [("bfloat16", 0.1), ("float16", 0.02)])
def test_a_lower_precision_gives_nearly_the_same_gradient(
    precision: Precision, limit: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    acted = Acted(LEARNING)
    batch = sampled(acted)
    gradients, asked = [], []

    def computing(*where: Any) -> Any:
        asked.append(where)
        return precisions.computing(*where)

    monkeypatch.setattr(recurrent, "computing", computing)
    for each in ("float32", precision):
        learning = LEARNING.model_copy(update={"precision": each})
        made = RecurrentValueLearning(acted.network, learning)
        made.compute_gradient(batch)
        gradients.append(torch.cat([each.grad.flatten() for each in acted.network.parameters()]))
    assert set(asked) == {(each, made.device) for each in ("float32", precision)}
    full, low = gradients
    assert not torch.equal(full, low)
    assert float((low - full).norm()) < limit * float(full.norm())


def slow_target(
    acted: Acted, frame: int, sequence: list[int], learning: LearningConfig
) -> float | None:
    """y = sum of gamma^i r_i + gamma^k max_a Q(o', a), tick by tick. If None, o' is not there.

    Network and target are the same here, so Double DQN's choice is the best action, too.
    """
    begun, gamma = frame + DELAY, learning.gamma
    last = min(tick for tick in (*ENDS, TICKS - 1) if tick >= begun)
    # Behind the last one of the episode there is one that was never executed.
    later = [
        tick for tick in range(begun + 1, last + 1)
        if tick - DELAY not in UNEXECUTED and tick - DELAY >= acted.starts[tick]
    ] + [last + 1]
    within = [tick for tick in later if tick - begun <= learning.n_step]
    following = max(within, default=later[0])
    value = sum(gamma ** (tick - begun) * acted.rows[tick][0] for tick in range(begun, following))
    if following > last:
        return value if ENDS[last] == TERMINATED else None
    if following - DELAY not in sequence:
        return None
    best = float(acted.answers[following - DELAY].max())
    return value + gamma ** (following - begun) * best


def test_only_the_steps_that_are_learned_from_have_a_gradient() -> None:
    acted = Acted(LEARNING)
    batch = sampled(acted)
    batch.observations.requires_grad_()
    unroll(acted.network, batch)[batch.learned].sum().backward()
    gradients = batch.observations.grad.abs().sum(dim=(1, 2)).view(*batch.parents.shape)
    assert (gradients[:, : batch.burn_in] == 0).all()
    assert (gradients[:, batch.burn_in : batch.end] > 0).all()
    assert (gradients[:, batch.end :] == 0).all()


@pytest.mark.parametrize("lost", ["frame", "lag", "state"])
def test_a_sequence_of_which_something_is_lost_counts_nothing(lost: str) -> None:
    acted = Acted(LEARNING)
    replay, whole = acted.replay(LEARNING), sampled(acted, count=200)
    frames = np.array(frames_of(acted, whole)).reshape(whole.parents.shape)
    hit = (frames == 48).any(axis=1)
    if lost == "frame":
        acted.frames.stamps[48] = -1
    elif lost == "lag":
        replay.index._rows["state_lag"][replay.index.find(np.array([48]))[0]] = UNKNOWN_LAG
    else:
        # Torn after its transition was noted. Its row is asked for only where the decision three
        # ticks before it is not in the sequence.
        acted.ledger._rows["state"][48 + DELAY] += 1.0
        hit &= (frames != 48 - LAG).all(axis=1)
    batch: Any = replay.sample(200, np.random.default_rng(1))
    kept = torch.from_numpy(~hit)[whole.learned // frames.shape[1]]
    assert torch.equal(batch.weights, whole.weights * kept)
    assert 0 < whole.weights[~kept].sum() < whole.weights.sum()


@pytest.mark.parametrize("missing", [0, 1])
def test_there_is_something_to_draw_as_soon_as_a_sequence_is_whole(missing: int) -> None:
    acted = Acted(LEARNING)
    burn_in = len(acted.replay(LEARNING)) - LEARNING.sequence - LEARNING.n_step + missing
    learning = LEARNING.model_copy(update={"burn_in": burn_in})
    batch = acted.replay(learning).sample(4, np.random.default_rng(0))
    assert (batch is None) == bool(missing)


@pytest.mark.parametrize("count", [1, 6, 7, 24])
def test_blank_batches_have_the_shapes_of_others(count: int) -> None:
    acted = Acted(LEARNING)
    there, made = sampled(acted, count=count), blank(acted.blueprint, LEARNING, count)
    assert SequenceShape.of(LEARNING).steps == 13
    for name in ("observations", "actions", "rewards", "weights", "parents", "starts", "learned"):
        assert getattr(there, name).shape == getattr(made, name).shape
        assert getattr(there, name).dtype == getattr(made, name).dtype
    network: nn.Module = acted.network
    assert np.isfinite(RecurrentValueLearning(network, LEARNING).compute_gradient(made)[0])


class Normalised(nn.Module):
    """A user's network, which normalises each step over the batch."""

    state_size = 4

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Sequential(nn.Linear(2, 4), nn.BatchNorm1d(4))
        self.last = nn.Linear(4, 3)

    def forward(self, observations: Tensor, states: Tensor) -> tuple[Tensor, Tensor]:
        left = states + self.layer(observations[:, 0])
        return self.last(left), left


@pytest.mark.parametrize("count", [1, 6, 24])
def test_a_network_with_batch_normalization_learns_from_a_single_sequence(count: int) -> None:
    update = SharedUpdate.private(Normalised(), LEARNING)
    blueprint = replace(Acted(LEARNING).blueprint, state_size=Normalised.state_size)
    assert update.step(blank(blueprint, LEARNING, count)).finite
