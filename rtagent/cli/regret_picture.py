"""The picture of `rtagent regret`: returns and regrets as bars with their intervals."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rtagent.errors import UserError, reason_of


def draw(path: Path, result: dict[str, Any], names: Mapping[str, str]) -> None:
    """Draw the result of the command.

    Raises:
        UserError: the file cannot be written.
    """
    # Slow to import, and needed for a picture only.
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9.0, 3.6), layout="constrained")
    returns, regrets = figure.subplots(1, 2)
    worlds = {text: result["worlds"].get(name) for name, text in names.items()}
    for axes, bars, title in (
        (returns, worlds, "return per episode"),
        (regrets, result["regret"], "regret per episode"),
    ):
        shown = {name: each["per_episode"] for name, each in bars.items() if each is not None}
        halves = [
            math.nan if each["half_interval"] is None else each["half_interval"]
            for each in shown.values()
        ]
        labels = [name.replace(" ", "\n", 1) for name in shown]
        axes.bar(labels, [each["value"] for each in shown.values()], yerr=halves, capsize=6,
                 color="tab:blue" if axes is returns else "tab:red", alpha=0.7)
        axes.axhline(0.0, color="black", linewidth=0.8)
        axes.set_title(title)
        axes.tick_params(axis="x", labelsize=8)
    figure.suptitle(
        f"{result['environment']}: {result['episodes']} episodes in each world, 95 % intervals",
        fontsize=10,
    )
    try:
        figure.savefig(path, dpi=120)
    except OSError as error:
        raise UserError(f"--picture {path}: {reason_of(error)}") from None
