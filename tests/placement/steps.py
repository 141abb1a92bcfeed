"""Profiles made by hand."""

from __future__ import annotations

from rtagent.placement.profile import Part, Profile

LAYERS = ("conv", "hidden", "values")


def made_profile(
    layers: tuple[str, ...] = LAYERS, *, cores: int = 2, head: str = "values", double: bool = False,
    bfloat16: float = 0.5, beside: float = 1.0, us: float = 1000.0,
) -> Profile:
    """Every part of a layer takes as long in float32; all others, and the head, 100 us.

    bfloat16 takes its share of that, and beside a busy core everything takes its multiple.
    """

    def part(layer: str, kind: str) -> Part:
        times = {"float32": us if layer and layer != head else 100.0}
        if layer != head:
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
    steps = {
        precision: sum(each.alone_us.get(precision, 100.0) for each in parts)
        for precision in ("float32", "bfloat16")
    }
    return Profile("a network", "dqn", 32, cores, tuple(parts), steps, 0.01, 10, handover_us=5.0)
