"""The picture of a plan."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from matplotlib.figure import Figure
from PIL import Image

from rtagent.placement.gantt import COLOURS, draw
from rtagent.placement.profile import KINDS, Profile
from rtagent.placement.step import place
from tests.placement.steps import made_actor_critic, made_profile


def test_every_kind_of_part_has_a_colour_of_its_own() -> None:
    assert set(COLOURS) == set(KINDS)
    assert len(set(COLOURS.values())) == len(KINDS)


def test_the_picture_shows_the_parts_that_there_are(tmp_path: Path) -> None:
    path = tmp_path / "plan.png"
    draw(path, "a plan", place(made_profile()))
    with Image.open(path) as image:
        colours = {colour[:3] for _, colour in image.convert("RGB").getcolors(1 << 24)}
    for kind in ("forward", "target", "weights", "apply"):
        assert tuple(bytes.fromhex(COLOURS[kind][1:])) in colours
    assert tuple(bytes.fromhex(COLOURS["successors"][1:])) not in colours


@pytest.mark.parametrize(("profile", "marks"), [
    (made_profile(bfloat16=0.4), ["critical path", "lower precision"]),
    (made_actor_critic(), ["critical path"]),
    (made_actor_critic(beside=3.0), ["critical path"]),
])
def test_the_legend_has_every_kind_and_mark_and_lies_within_the_picture(
    profile: Profile, marks: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The twelve kinds of DDPG stood in one row, of which both ends were cut off."""
    drawn: list[Any] = []
    save = Figure.savefig
    monkeypatch.setattr(
        Figure, "savefig", lambda figure, *args, **how: drawn.append(figure) or save(
            figure, *args, **how
        )
    )
    draw(tmp_path / "plan.png", "a plan", place(profile))
    (legend,) = drawn[0].legends
    kinds = dict.fromkeys(part.kind for part in profile.parts)
    assert [each.get_text() for each in legend.get_texts()] == [*kinds, *marks]
    shown, whole = legend.get_window_extent(), drawn[0].bbox
    assert whole.x0 <= shown.x0 < shown.x1 <= whole.x1
    assert whole.y0 <= shown.y0 < shown.y1 <= drawn[0].axes[0].get_window_extent().y0
