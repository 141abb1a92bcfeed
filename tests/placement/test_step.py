"""A step as a graph, and its plans."""

from __future__ import annotations

from dataclasses import replace

import pytest

from rtagent.placement.step import SECOND, Placement, place, place_on_one
from tests.placement.steps import made_actor_critic, made_profile


def units_of(placement: Placement, kind: str) -> list[str]:
    return [
        placement.unit(n).processor for n, part in enumerate(placement.profile.parts)
        if part.kind == kind
    ]


def test_the_target_runs_beside_the_online_network_and_weights_beside_inputs() -> None:
    placement = place(made_profile(bfloat16=2.0))
    assert placement.plan.proven
    assert set(units_of(placement, "target")) == {SECOND}
    # Of seven parts of 1000 us, two forward and two backward parts come one after the other.
    assert placement.plan.length_us < 0.65 * placement.predicted_single_us
    assert placement.uses_second


def test_a_prediction_has_what_a_whole_step_takes_beyond_its_parts() -> None:
    profile = made_profile(bfloat16=2.0)
    steps = {"float32": 1.2 * profile.step_us["float32"]}
    longer = replace(profile, step_us=steps, split_us=steps)
    placement = place(longer)
    assert placement.plan.length_us == pytest.approx(place(profile).plan.length_us)
    assert placement.predicted_us == pytest.approx(1.2 * placement.plan.length_us)
    assert placement.predicted_single_us == pytest.approx(steps["float32"])


def test_what_hangs_on_the_tape_stays_on_the_first_core() -> None:
    placement = place(made_profile(double=True))
    for kind in ("takeover", "forward", "loss", "inputs", "gradient", "apply"):
        assert set(units_of(placement, kind)) == {"cpu:0"}
    for kind in ("target", "successors"):
        assert len(set(units_of(placement, kind))) == 1


def test_a_backward_pass_has_the_precision_of_its_forward_pass() -> None:
    placement = place(made_profile(bfloat16=0.4))
    precision = {part.name: placement.unit(n).precision
                 for n, part in enumerate(placement.profile.parts)}
    assert precision["hidden forward"] == precision["hidden inputs"] == "bfloat16"
    assert precision["conv forward"] == precision["conv weights"] == "bfloat16"
    assert precision["values forward"] == precision["values target"] == "float32"


def test_two_cores_that_hold_each_other_up_are_not_used() -> None:
    placement = place(made_profile(beside=3.0))
    assert not placement.uses_second
    assert placement.plan.length_us == placement.predicted_single_us


def test_a_simpler_plan_is_not_called_the_shortest_where_a_shorter_one_was_found() -> None:
    """It is taken because predictions may be off by more than what the shorter one saves."""
    one_core = place(made_profile(beside=1.5, bfloat16=1.0))
    assert not one_core.uses_second
    assert not one_core.plan.proven
    # In bfloat16 the convolution alone is faster, by less than 5 % of the step.
    profile = made_profile(cores=1, bfloat16=1.0)
    assert place(profile).plan.proven
    faster = {"float32": 1000.0, "bfloat16": 950.0}
    parts = tuple(
        replace(part, alone_us=faster) if part.layer == "conv" else part for part in profile.parts
    )
    times = {"float32": 7800.0, "bfloat16": 7801.0}
    one_precision = place(replace(profile, parts=parts, step_us=times, split_us=times))
    assert one_precision.precision == "float32"
    assert not one_precision.plan.proven


def test_one_core_is_planned_for_alone() -> None:
    profile = made_profile(cores=1, bfloat16=2.0)
    placement = place(profile)
    assert placement == place_on_one(profile)
    alone = sum(part.alone_us["float32"] for part in profile.parts)
    assert placement.plan.length_us == pytest.approx(alone) == placement.predicted_single_us


def test_the_critical_path_leads_from_the_beginning_to_the_end() -> None:
    placement = place(made_profile())
    names = [placement.profile.parts[n].name for n in placement.critical()]
    assert names[0] == "takeover"
    assert names[-2:] == ["gradient", "apply"]


@pytest.mark.parametrize(("handover", "used"), [(0.08, True), (0.1, False), (0.35, False)])
def test_a_second_core_must_save_more_than_a_prediction_may_be_wrong_by(
    handover: float, used: bool,
) -> None:
    profile = made_profile(bfloat16=2.0)
    slow = replace(profile, handover_us=handover * place_on_one(profile).predicted_us)
    placement = place(slow)
    assert placement.uses_second == used
    assert placement.predicted_us <= (0.85 if used else 1.0) * placement.predicted_single_us


def test_the_policy_runs_beside_the_values_and_keeps_its_backward_pass() -> None:
    placement = place(made_actor_critic())
    policy = {kind: set(units_of(placement, kind))
              for kind in ("policy", "policy loss", "policy inputs", "policy weights")}
    assert set.union(*policy.values()) == {SECOND}
    assert set(units_of(placement, "target")) == {"cpu:0"}
    # Takeover, the five parts of the policy's pass, two handovers, gradient and apply; the target,
    # the forward pass, the loss and the weights run meanwhile.
    assert placement.plan.length_us == 810.0
    assert placement.predicted_single_us == 1300.0
    assert not placement.split_layers


def test_two_small_networks_that_wait_for_each_other_stay_on_one_core() -> None:
    placement = place(made_actor_critic(beside=2.5))
    assert not placement.uses_second
    assert placement.predicted_us == placement.predicted_single_us == 1300.0


def test_a_simple_plan_is_taken_where_splitting_layers_costs_what_it_gains() -> None:
    profile = made_profile(("values",), bfloat16=2.0)
    cheap, dear = (
        replace(profile, split_us={"float32": factor * profile.step_us["float32"]})
        for factor in (1.0, 1.5)
    )
    assert place(dear).split_layers == frozenset()
    assert place(dear).predicted_us <= 1.5 * place(cheap).predicted_us


def test_a_plan_that_mixes_precisions_splits_every_layer() -> None:
    placement = place_on_one(made_profile(bfloat16=0.4))
    assert placement.precision == "bfloat16"
    assert not placement.split_layers
    parts = [
        replace(part, alone_us=part.alone_us | {"bfloat16": 9e3}) if part.layer == "conv" else part
        for part in made_profile(bfloat16=0.4).parts
    ]
    profile = replace(made_profile(bfloat16=0.4), parts=tuple(parts))
    steps = {each: sum(part.alone_us.get(each, 100.0) for part in parts)
             for each in profile.precisions}
    mixed = place_on_one(replace(profile, step_us=steps, split_us=steps))
    assert mixed.precision is None
    assert mixed.split_layers == {"conv", "hidden", "values"}
