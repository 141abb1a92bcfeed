"""What the page spares the processor, which may have to act: it changes little, and seldom."""

from __future__ import annotations

from typing import Any

import pytest

from tests.forked import eventually
from tests.service.conftest import RunningService
from tests.service.dashboard.conftest import expect_text, figure
from tests.service.dashboard.test_drawn import draw

pytestmark = pytest.mark.browser

BARS = """[...document.querySelectorAll('.meter i')].map((part) => part.style.width)"""
COUNT_FRAMES = """
  window.asked = 0;
  const ask = window.requestAnimationFrame;
  window.requestAnimationFrame = (work) => { window.asked += 1; return ask(work); };
"""
NO_FRAMES = """() => {
  window.works = [];
  window.requestAnimationFrame = (work) => window.works.push(work);
}"""
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


def test_the_timeline_is_drawn_at_most_thirty_times_a_second(
    blank: Any, running: RunningService
) -> None:
    blank.add_init_script(COUNT_FRAMES)
    draw(blank, running, 2)
    count = "[window.asked, performance.now()]"
    first, began = blank.evaluate(count)
    assert eventually(lambda: blank.evaluate("window.asked") > first + 20)
    last, ended = blank.evaluate(count)
    assert last - first <= (ended - began) / 33 + 1


def test_without_frames_as_on_a_hidden_page_nothing_is_shown_until_there_is_one(
    page: Any, running: RunningService
) -> None:
    expect_text(figure(page, "actions.agent"), "17,800")
    page.evaluate(NO_FRAMES)
    # One that was asked for before may still come.
    assert eventually(lambda: page.evaluate("window.works.length") == 1)
    for agent in (20_000, 30_000):
        running.backend.figures["actions"]["agent"] = agent
        assert passed(running, 3)
    assert figure(page, "actions.agent").inner_text() == "17,800"
    assert page.evaluate("window.works.length") == 1
    page.evaluate("window.works[0](performance.now())")
    assert figure(page, "actions.agent").inner_text() == "30,000"
