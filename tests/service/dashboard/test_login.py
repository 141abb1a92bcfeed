"""Logging in and out, in a real browser."""

from __future__ import annotations

from typing import Any

import pytest

from tests.service.conftest import TOKEN, RunningService
from tests.service.dashboard.conftest import expect_text

pytestmark = pytest.mark.browser


def test_without_a_session_the_page_says_what_to_do(blank: Any, running: RunningService) -> None:
    blank.goto(running.settings.url)
    expect_text(blank.locator("main"), "rtagent login")
    blank.fill("#secret", "wrong")
    blank.click("button")
    expect_text(blank.locator('[role="alert"]'), "has been used or has expired")
    blank.fill("#secret", TOKEN)
    blank.click("button")
    expect_text(blank.locator("#run-id"), "20250101-abcd")
    assert blank.url == running.settings.url


def test_an_address_opens_once_and_leaves_no_secret_in_sight(
    blank: Any, running: RunningService
) -> None:
    address = running.login_url()
    blank.goto(address)
    expect_text(blank.locator("#run-id"), "20250101-abcd")
    assert blank.url == running.settings.url
    cookies = blank.context.cookies()
    assert [(each["httpOnly"], each["sameSite"]) for each in cookies] == [(True, "Strict")]
    assert TOKEN not in str(cookies)
    blank.click("text=Log out")
    expect_text(blank.locator("main"), "rtagent login")
    blank.goto(address)
    expect_text(blank.locator('[role="alert"]'), "has been used or has expired")


def test_an_address_opens_from_a_page_of_another_site(blank: Any, running: RunningService) -> None:
    link = f'<a href="{running.login_url()}">log in</a>'
    blank.route("http://chat.example/", lambda route: route.fulfill(
        content_type="text/html", body=link))
    blank.goto("http://chat.example/")
    blank.click("text=log in")
    expect_text(blank.locator("#run-id"), "20250101-abcd")
    assert blank.url == running.settings.url
