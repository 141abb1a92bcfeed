"""How bad it is what an event tells: the same in the log and on the page."""

from __future__ import annotations

import logging
import re
from pathlib import Path

import pytest

from rtagent.logs.event_levels import GRAVE, NOTABLE, level_of

SENTENCES = Path(__file__).parents[2] / "service" / "static" / "sentences.js"


@pytest.mark.parametrize(("name", "kinds"), [("GRAVE", GRAVE), ("NOTABLE", NOTABLE)])
def test_the_page_has_the_same_lists(name: str, kinds: frozenset[str]) -> None:
    found = re.search(rf"const {name} = new Set\(\[(.*?)\]\)", SENTENCES.read_text(), re.DOTALL)
    assert found is not None
    assert set(re.findall(r'"(\w+)"', found[1])) == kinds


def test_levels() -> None:
    levels = [level_of(kind) for kind in ("failed", "died", "started", "anything")]
    assert levels == [logging.ERROR, logging.WARNING, logging.INFO, logging.INFO]
