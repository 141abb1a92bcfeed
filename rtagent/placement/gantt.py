"""The picture of a plan: where and when each part runs, like Fig. 14 of AP-DRL."""

from __future__ import annotations

from pathlib import Path

from rtagent.placement.step import Placement

COLOURS = {
    "takeover": "#999999", "forward": "#0072b2", "successors": "#56b4e9", "target": "#009e73",
    "loss": "#f0e442", "inputs": "#d55e00", "weights": "#e69f00", "gradient": "#cc79a7",
    "apply": "#444444", "policy": "#332288", "policy loss": "#ddcc77", "policy inputs": "#882255",
    "policy weights": "#aa4499",
}
"""By kind of part; colours that people with any colour vision can tell apart (of Okabe and Ito, and
of Tol for a policy's pass)."""
EDGE = "black"
LOW_PRECISION = "//"
IN_A_ROW = 8
"""Entries of the legend, which is no wider than the picture then."""


def draw(path: Path, title: str, placement: Placement) -> None:
    """Write the picture of a plan to a file.

    Hatched parts do not run in float32; parts with a black edge lie on the critical path.

    Raises:
        OSError: it cannot be written.
    """
    # Imported here, for it takes a second, and only pictures need it.
    from matplotlib.figure import Figure
    from matplotlib.patches import Patch

    processors = placement.problem.processors
    figure = Figure(figsize=(11.0, 1.8 + 0.7 * len(processors)), layout="constrained")
    axis = figure.subplots()
    critical = set(placement.critical())
    for number, (part, placed) in enumerate(
        zip(placement.profile.parts, placement.plan.placed, strict=True)
    ):
        unit = placement.unit(number)
        axis.barh(
            processors.index(unit.processor), 1e-3 * (placed.end_us - placed.start_us),
            left=1e-3 * placed.start_us, height=0.7, color=COLOURS[part.kind],
            hatch="" if unit.precision == "float32" else LOW_PRECISION,
            edgecolor=EDGE if number in critical else "white", linewidth=0.8,
        )
    axis.set_yticks(range(len(processors)), processors)
    axis.invert_yaxis()
    axis.set_xlabel("milliseconds")
    axis.set_title(title)
    used = dict.fromkeys(part.kind for part in placement.profile.parts)
    marks = [Patch(facecolor="white", edgecolor=EDGE, label="critical path")]
    if any(placement.unit(n).precision != "float32" for n in range(len(placement.plan.placed))):
        marks.append(Patch(
            facecolor="white", edgecolor="grey", hatch=LOW_PRECISION, label="lower precision",
        ))
    figure.legend(
        handles=[*(Patch(color=COLOURS[kind], label=kind) for kind in used), *marks],
        ncols=IN_A_ROW, loc="outside lower center", frameon=False, fontsize=8,
    )
    figure.savefig(path, dpi=120)
