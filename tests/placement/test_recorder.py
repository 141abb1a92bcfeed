"""A recorder notes the times of parts, and what each part waits for."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count

import torch

from rtagent.placement.recorder import Recorder


def begun() -> Recorder:
    """One at the beginning of a step, whose clock goes on by a second at each look."""
    seconds = count()
    recorder = Recorder(lambda: float(next(seconds)))
    recorder.begin()
    return recorder


def answer() -> torch.Tensor:
    return torch.zeros(1)


def layers(recorder: Recorder, *names: str) -> Callable[[], torch.Tensor]:
    """A forward pass through layers."""

    def run() -> torch.Tensor:
        for name in names:
            recorder.forward(name, answer)
        return answer()

    return run


def test_a_pass_waits_for_what_was_there_and_is_waited_for_where_it_is_asked_for() -> None:
    recorder = begun()
    recorder.mark("takeover")
    target = recorder.start("target", layers(recorder, "a", "b"))
    recorder.forward("a", answer)
    later = recorder.start("successors", layers(recorder, "b"))
    recorder.forward("b", answer)
    target()
    recorder.weights("b", lambda: None)
    recorder.inputs("b", answer)
    recorder.weights("a", lambda: None)
    later()
    recorder.finish()
    recorder.mark("gradient")
    assert recorder.after == {
        ("", "takeover"): (), ("a", "forward"): (("", "takeover"),),
        ("b", "forward"): (("a", "forward"),), ("a", "target"): (("", "takeover"),),
        ("b", "target"): (("a", "target"),), ("", "loss"): (("b", "forward"), ("b", "target")),
        ("b", "weights"): (("", "loss"),), ("b", "inputs"): (("", "loss"),),
        ("a", "weights"): (("b", "inputs"),), ("b", "successors"): (("a", "forward"),),
        ("", "gradient"): (
            ("b", "inputs"), ("b", "successors"), ("b", "weights"), ("a", "weights"),
        ),
    }


def test_a_pass_with_a_backward_pass_goes_on_in_its_order() -> None:
    recorder = begun()
    recorder.mark("takeover")

    def climb() -> torch.Tensor:
        layers(recorder, "a", "c")()
        recorder.inputs("c", answer)
        recorder.weights("a", lambda: None)
        return answer()

    recorder.start("policy", climb)()
    recorder.finish()
    recorder.mark("gradient")
    assert list(recorder.after.items())[1:] == [
        (("a", "policy"), (("", "takeover"),)), (("c", "policy"), (("a", "policy"),)),
        (("", "policy loss"), (("c", "policy"),)),
        (("c", "policy inputs"), (("", "policy loss"),)),
        (("a", "policy weights"), (("c", "policy inputs"),)),
        (("", "gradient"), (("", "takeover"), ("a", "policy weights"))),
    ]


def test_the_parts_are_all_of_the_step() -> None:
    recorder = begun()
    recorder.mark("takeover")
    target = recorder.start("target", layers(recorder, "a"))
    layers(recorder, "a", "a")()
    target()
    recorder.weights("a", lambda: None)
    recorder.mark("gradient")
    last = recorder._now()
    # From the look at the clock at the beginning to the one before this.
    assert sum(recorder.spent.values()) == last - 1.0
    assert recorder.after["a", "target"] == (("", "takeover"),)
    assert recorder.after["", "loss"] == (("a", "forward"), ("a", "target"))


def test_a_pass_that_fails_leaves_the_step_to_itself() -> None:
    recorder = begun()
    failing = recorder.start("target", lambda: recorder.forward("a", lambda: 1 // 0))
    try:
        failing()
    except ZeroDivisionError:
        recorder.forward("a", answer)
    assert list(recorder.spent) == [("a", "forward")]
