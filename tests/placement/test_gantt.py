"""The picture of a plan."""

from __future__ import annotations

from pathlib import Path

from PIL import Image

from rtagent.placement.gantt import COLOURS, draw
from rtagent.placement.profile import KINDS
from rtagent.placement.step import place
from tests.placement.steps import made_profile


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
