"""The dashboard in a real browser: opening it, reading it, and waiting for what it shows."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from typing import Any

import pytest

from benchmarks.reliability.dashboard_page import PROGRAMS
from tests.forked import eventually
from tests.installed import require
from tests.service.conftest import RunningService

FLAGS = [
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
]
EXPECTED = ("Failed to load resource", "WebSocket connection to", "Canvas2D: Multiple readback")
"""Console messages that are caused by answers with an error, and by tests that read pixels."""
PATIENCE_MS = 120_000


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        require(None, "playwright")
    chromium = next(filter(None, map(shutil.which, PROGRAMS)), None)
    require(chromium, "chromium")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=FLAGS)
        yield browser
        browser.close()


@pytest.fixture
def blank(browser: Any) -> Iterator[Any]:
    """An empty page; whatever is opened in it must log no error and no warning."""
    page = browser.new_page()
    page.set_default_timeout(PATIENCE_MS)
    complaints: list[str] = []
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("console", lambda message: complaints.append(message.text)
            if message.type in ("error", "warning") and not message.text.startswith(EXPECTED)
            else None)
    yield page
    page.close()
    assert complaints == []


@pytest.fixture
def page(blank: Any, running: RunningService) -> Any:
    """The dashboard, opened with a login address."""
    blank.goto(running.login_url())
    return blank


def lose(page: Any, running: RunningService) -> None:
    """Stop the service, and wait until the page says so."""
    running.stop()
    expect_text(page.get_by_role("alert"), "Connection lost")


def becomes(page: Any, condition: str) -> bool:
    """Wait until JavaScript on the page is true; meanwhile the page is told what happens."""
    return eventually(lambda: page.wait_for_timeout(100) or page.evaluate(condition))


def figure(page: Any, path: str) -> Any:
    return page.locator(f'[data-figure="{path}"]').first


def verdict(page: Any, name: str) -> Any:
    return page.locator(f"#verdict-{name} .headline")


def form(page: Any) -> Any:
    return page.locator("#settings")


def control(page: Any, key: str) -> Any:
    """The control of a setting."""
    return page.locator(f'#settings [name="{key}"]')


def expect_text(locator: Any, text: str) -> None:
    """Wait until the element contains the pattern, whose spaces match any white space."""
    from playwright.sync_api import expect

    expect(locator).to_have_text(re.compile(text.replace(" ", r"\s+")), timeout=PATIENCE_MS)


def expect_attribute(locator: Any, name: str, text: str) -> None:
    from playwright.sync_api import expect

    pattern = re.compile(text.replace(" ", r"\s+"))
    expect(locator).to_have_attribute(name, pattern, timeout=PATIENCE_MS)


def event(number: int, kind: str, source: str | None = None, **details: Any) -> dict[str, Any]:
    return {"id": number, "at": "2025-01-01T12:00:31.250+00:00", "uptime_s": 301.0, "kind": kind,
            "source": source, **details}


def expect_value(locator: Any, value: str) -> None:
    from playwright.sync_api import expect

    expect(locator).to_have_value(value, timeout=PATIENCE_MS)
