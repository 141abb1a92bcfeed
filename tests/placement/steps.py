"""Profiles made by hand."""

from __future__ import annotations

from dataclasses import replace

from rtagent.placement.profile import Part, Profile

HEAD = "values"
LAYERS = ("conv", "hidden", HEAD)


def made_profile(
    layers: tuple[str, ...] = LAYERS, *, cores: int = 2, double: bool = False,
    bfloat16: float = 0.5, beside: float = 1.0,
) -> Profile:
    """A step of DQN; every layer's parts take as long in float32, all others and the head 100 us.

    bfloat16 takes its share of that, and beside a busy core everything takes its multiple.
    """

    def part(layer: str, kind: str) -> Part:
        times = {"float32": 1000.0 if layer and layer != HEAD else 100.0}
        if layer != HEAD:
            times["bfloat16"] = bfloat16 * times["float32"] if layer else 100.0
        return Part(layer, kind, times, {each: beside * time for each, time in times.items()})

    passes = ("forward", "target", *(["successors"] if double else []))
    parts = [part("", "takeover")]
    parts += [part(layer, kind) for kind in passes for layer in layers]
    parts.append(part("", "loss"))
    for layer in reversed(layers):
        parts.append(part(layer, "weights"))
        if layer != layers[0]:
            parts.append(part(layer, "inputs"))
    parts += [part("", "gradient"), part("", "apply")]
    parts = [replace(each, after=_predecessors(parts, n)) for n, each in enumerate(parts)]
    steps = {
        precision: sum(each.alone_us.get(precision, 100.0) for each in parts)
        for precision in ("float32", "bfloat16")
    }
    return Profile(
        "a network", "dqn", 32, cores, tuple(parts), steps, steps, 0.01, 10, handover_us=5.0
    )


def made_actor_critic(*, beside: float = 1.0) -> Profile:
    """A step of DDPG with a layer each, in float32; every part takes 100 us.

    Beside a busy core it takes its multiple.
    """
    order: list[tuple[str, str, tuple[int, ...]]] = [
        ("", "takeover", ()), ("critic", "forward", (0,)),
        ("actor", "target", (0,)), ("critic", "target", (2,)),
        ("", "loss", (1, 3)), ("critic", "weights", (4,)),
        ("actor", "policy", (0,)), ("critic", "policy", (6,)), ("", "policy loss", (7,)),
        ("critic", "policy inputs", (8,)), ("actor", "policy weights", (9,)),
        ("", "gradient", (4, 5, 10)), ("", "apply", (11,)),
    ]
    parts = tuple(
        Part(layer, kind, {"float32": 100.0}, {"float32": 100.0 * beside}, after)
        for layer, kind, after in order
    )
    step_us = 100.0 * len(parts)
    return Profile(
        "two networks", "ddpg", 32, 2, parts, {"float32": step_us}, {"float32": step_us},
        0.01, 10, handover_us=5.0,
    )


def _predecessors(parts: list[Part], number: int) -> tuple[int, ...]:
    """The parts that a part of a step of DQN waits for."""
    kind = parts[number].kind

    def last(*kinds: str) -> list[int]:
        return [each for each in range(number) if parts[each].kind in kinds][-1:]

    if kind in ("forward", "target", "successors"):
        return tuple(last(kind) or last("takeover"))
    if kind == "loss":
        return tuple(each for one in ("forward", "successors", "target") for each in last(one))
    if kind in ("inputs", "weights"):
        return tuple(last("inputs") or last("loss"))
    if kind == "gradient":
        weights = [each for each in range(number) if parts[each].kind == "weights"]
        return (*last("inputs"), *weights)
    return tuple(last("gradient"))
