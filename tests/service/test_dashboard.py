"""The dashboard in a real browser."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
import pytest

from rtagent.errors import UserError
from tests.service.conftest import RunningService, eventually, role

FLAGS = [
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
]
pytestmark = pytest.mark.browser


def _missing(what: str) -> None:
    reason = f"{what} is not installed"
    if os.environ.get("CI"):
        pytest.fail(reason)
    pytest.skip(reason)


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        _missing("playwright")
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    if chromium is None:
        _missing("chromium")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=FLAGS)
        yield browser
        browser.close()


@pytest.fixture
def page(browser: Any, running: RunningService) -> Iterator[Any]:
    """The dashboard, opened with the address that is printed; it must not complain."""
    page = browser.new_page()
    page.set_default_timeout(8000)
    complaints: list[str] = []
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("console", lambda message: complaints.append(message.text)
            if "Content Security Policy" in message.text else None)
    page.goto(running.settings.login_url)
    yield page
    page.close()
    assert complaints == []


def figure(page: Any, path: str) -> Any:
    return page.locator(f'[data-figure="{path}"]').first


def expect_text(locator: Any, text: str) -> None:
    from playwright.sync_api import expect

    expect(locator).to_have_text(re.compile(text), timeout=8000)


def test_shows_live_figures(page: Any, running: RunningService) -> None:
    assert page.url == running.settings.url
    expect_text(figure(page, "clock.ticks"), "18,000")
    expect_text(figure(page, "actions.inaction_fraction_60s"), r"0\.20 %")
    expect_text(page.locator("#state"), "running")
    running.backend.figures["clock"]["ticks"] = 18_060
    expect_text(figure(page, "clock.ticks"), "18,060")
    assert page.locator("#injected").is_hidden()


def test_unknown_is_never_a_zero(page: Any, running: RunningService) -> None:
    running.backend.figures["learning"]["loss"] = None
    running.backend.figures["actions"]["inaction_fraction_60s"] = None
    expect_text(figure(page, "learning.loss"), "^unknown$")
    expect_text(figure(page, "actions.inaction_fraction_60s"), "^unknown$")


def test_injected_latency_is_named(page: Any, running: RunningService) -> None:
    running.backend.figures["inference"]["injected_latency_ms"] = 82.0
    expect_text(page.locator("#injected"), r"padded to 82\.0 ms")
    for tag in page.locator(".tag:not(#paused)").all():
        expect_text(tag, r"injected: 82\.0 ms")


def test_shows_learners_deadlines_and_memory(page: Any, running: RunningService) -> None:
    expect_text(figure(page, "learning.order"), "round-robin")
    expect_text(figure(page, "learning.staleness.mean"), "^unknown$")
    for hidden in ("#horizon", "#memory", "#paused"):
        assert page.locator(hidden).is_hidden()
    figures = running.backend.figures
    figures["learning"].update(processes=3, paused=True, staleness={"mean": 1.5, "max": 4})
    figures["r3"].update(
        mode="step", time_ratio=0.25, data_ratio=0.5, batch_cap=128, used_bytes=850 << 20,
        memory_budget_bytes=900 << 20, horizons={"met": 7, "missed": None},
    )
    expect_text(figure(page, "learning.processes"), "^3$")
    expect_text(figure(page, "learning.staleness.mean"), r"^1\.50$")
    expect_text(figure(page, "learning.staleness.max"), "^4$")
    expect_text(page.locator("#paused"), "paused")
    assert page.locator("#paused").is_visible()
    expect_text(figure(page, "r3.time_ratio"), r"25\.0 %")
    expect_text(figure(page, "r3.horizons.met"), "^7$")
    expect_text(figure(page, "r3.horizons.missed"), "^unknown$")
    expect_text(figure(page, "r3.batch_cap"), "^128$")
    expect_text(figure(page, "r3.used_bytes"), "850 MiB")
    expect_text(figure(page, "r3.memory_budget_bytes"), "900 MiB")
    width = "element => element.offsetWidth / element.parentElement.offsetWidth"
    bars = [page.locator(f'[data-share="r3.{name}_ratio"]') for name in ("time", "data")]
    assert [bar.evaluate(width) for bar in bars] == pytest.approx([0.25, 0.5], abs=0.02)


def test_changes_the_number_of_processes(page: Any, running: RunningService) -> None:
    expect_text(figure(page, "inference.ready"), "2")
    page.fill("input[name=processes]", "5")
    page.keyboard.press("Enter")
    expect_text(page.locator("#answer"), "In force: 5 processes, adaptive")
    assert running.backend.commands == [("set_inference", {"processes": 5})]
    expect_text(figure(page, "inference.processes"), "5")
    page.select_option("select[name=algorithm]", "maximum-time")
    page.get_by_role("button", name="Apply").click()
    expect_text(page.locator("#answer"), "maximum-time")
    assert running.backend.commands[1:] == [("set_inference", {"algorithm": "maximum-time"})]


def test_shows_why_a_change_was_refused(page: Any, running: RunningService) -> None:
    expect_text(figure(page, "inference.ready"), "2")
    page.fill("input[name=processes]", "257")
    page.keyboard.press("Enter")
    expect_text(page.locator("#answer"), "Not changed. processes = 257")
    running.backend.failure = UserError("too little memory for 200 processes")
    page.fill("input[name=processes]", "200")
    page.keyboard.press("Enter")
    expect_text(page.locator("#answer"), "too little memory for 200 processes")


def test_screen_moves(page: Any, running: RunningService) -> None:
    pixel = (
        "document.querySelector('#screen').getContext('2d').getImageData(5, 5, 1, 1).data[0]"
    )

    def shows(grey: int) -> bool:
        return bool(page.evaluate(pixel) == grey)

    for grey in (200, 40):
        running.backend.picture = np.full((84, 84), grey, np.uint8)
        assert eventually(partial(shows, grey))


def test_no_screen(page: Any, running: RunningService) -> None:
    running.backend.has_screen = False
    expect_text(page.locator("#no-screen"), "this environment has no picture")


def test_shows_a_failed_process(page: Any, running: RunningService) -> None:
    error = "Traceback (most recent call last):\n  <b>x</b>\nValueError: wrong shape"
    running.backend.report["roles"][3] = role(
        "learner", 0, state="failed", pid=None, restarts=5, last_error=error
    )
    row = page.locator("#processes tr").nth(3)
    expect_text(row.locator(".state"), "failed")
    expect_text(row.locator(".pid"), "unknown")
    expect_text(row.locator("summary"), "ValueError: wrong shape")
    row.locator("summary").click()
    expect_text(row.locator("pre"), "<b>x</b>")


def test_lost_connection_is_announced_and_mended(page: Any, running: RunningService) -> None:
    expect_text(figure(page, "clock.ticks"), "18,000")
    running.stop()
    expect_text(page.get_by_role("alert"), "Connection lost")
    running.backend.figures["clock"]["ticks"] = 19_000
    running.start()
    expect_text(figure(page, "clock.ticks"), "19,000")
    page.locator("#connection").wait_for(state="hidden")
    expect_text(page.locator("#state"), "running")


def test_fits_a_phone(page: Any) -> None:
    page.set_viewport_size({"width": 400, "height": 800})
    expect_text(figure(page, "clock.ticks"), "18,000")
    assert page.evaluate("document.documentElement.scrollWidth") <= 400
