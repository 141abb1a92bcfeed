"""What the page spares the processor, which may have to act: it changes little, and seldom."""

from __future__ import annotations

from typing import Any

import pytest

from tests.forked import eventually
from tests.service.conftest import RunningService
from tests.service.dashboard.conftest import expect_text, figure

pytestmark = pytest.mark.browser

BARS = """[...document.querySelectorAll('.meter i')].map((part) => part.style.width)"""
CHANGES = """() => {
  window.changes = [];
  const all = { subtree: true, childList: true, characterData: true };
  new MutationObserver((found) => window.changes.push(...found.map(({ target }) => target.id)))
    .observe(document.querySelector('main'), all);
}"""


def passed(running: RunningService, number: int) -> bool:
    """Wait until the daemon has been asked for figures some more times."""
    before = running.backend.collected
    return eventually(lambda: running.backend.collected >= before + number)


def test_what_has_not_changed_is_not_written_again(page: Any, running: RunningService) -> None:
    expect_text(figure(page, "actions.agent"), "17,800")
    expect_text(page.locator("#timeline-summary"), "2 processes")
    page.locator("#hold").click()
    expect_text(page.locator("#events-title"), "Events")
    assert passed(running, 10)
    page.evaluate(CHANGES)
    assert passed(running, 10)
    assert page.evaluate("window.changes") == []


def test_a_bar_is_not_drawn_for_a_change_that_nobody_sees(
    page: Any, running: RunningService
) -> None:
    expect_text(figure(page, "actions.agent"), "17,800")
    before = page.evaluate(BARS)
    running.backend.figures["actions"]["agent"] += 1
    expect_text(figure(page, "actions.agent"), "17,801")
    assert page.evaluate(BARS) == before
    assert page.evaluate("document.getAnimations().length") == 0
