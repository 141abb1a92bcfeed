"""What the page says and does while the daemon does not answer, or does not send figures."""

from __future__ import annotations

from functools import partial
from typing import Any
from urllib.parse import urlsplit

import pytest

from tests.forked import eventually
from tests.service.conftest import RunningService, example_timeline
from tests.service.dashboard.conftest import (
    becomes,
    expect_attribute,
    expect_text,
    figure,
    lose,
    verdict,
)

pytestmark = pytest.mark.browser


def test_lost_connection_is_announced_and_mended(page: Any, running: RunningService) -> None:
    expect_text(figure(page, "actions.agent"), "17,800")
    lose(page, running)
    expect_text(verdict(page, "acting"), "^Not known$")
    expect_text(verdict(page, "health"), "^Connection lost$")
    running.backend.figures["actions"]["agent"] = 19_000
    running.start()
    expect_text(figure(page, "actions.agent"), "19,000")
    page.locator("#connection").wait_for(state="hidden")
    expect_text(page.locator("#state"), "running")
    expect_text(verdict(page, "health"), "^Nothing is broken$")


def test_delays_from_before_a_lost_connection_are_forgotten(
    page: Any, running: RunningService
) -> None:
    """The ticks may be those of another run, which the figures come from before the status."""
    delays = page.locator("#delays")
    expect_attribute(delays, "aria-label", "Delays of the newest .* 2 ticks")
    lose(page, running)
    running.backend.drawn = example_timeline(now_ms=302_372.0, processes=7)
    running.start()
    expect_attribute(delays, "aria-label", " 7 ticks")
    assert ": 7 ticks" in delays.get_attribute("aria-label")


def test_a_daemon_that_answers_but_sends_no_figures_is_not_called_silent(
    blank: Any, running: RunningService
) -> None:
    """As when every place for streams is taken."""
    detail = blank.locator("#verdict-health .detail")

    def says(what: str) -> bool:
        blank.clock.fast_forward(1_000)
        return what in detail.inner_text()

    blank.route("**/v1/stats/stream*", lambda route: route.fulfill(status=503))
    blank.clock.install()
    blank.goto(running.login_url())
    assert eventually(partial(says, "The daemon does not answer"))
    assert eventually(partial(says, "The daemon answers, but sends no figures"))
    expect_text(blank.get_by_role("alert"), "too many pages may be open")
    blank.route("**/v1/status", lambda route: route.abort())
    assert eventually(partial(says, "The daemon does not answer"))


def test_a_stream_that_is_never_answered_is_asked_for_again(
    blank: Any, running: RunningService
) -> None:
    """As on a connection that a router between has forgotten."""
    asked: list[Any] = []

    def leave_the_first(route: Any) -> None:
        asked.append(route)
        if len(asked) > 1:
            route.continue_()

    blank.route("**/v1/stats/stream*", leave_the_first)
    blank.clock.install()
    blank.goto(running.login_url())
    blank.clock.fast_forward(4_000)
    expect_text(blank.get_by_role("alert"), "Connection lost")
    blank.clock.fast_forward(10_000)
    expect_text(figure(blank, "actions.agent"), "17,800")
    blank.locator("#connection").wait_for(state="hidden")


def test_while_nobody_answers_only_the_stream_and_the_status_are_asked_for(
    page: Any, running: RunningService
) -> None:
    expect_text(figure(page, "actions.agent"), "17,800")
    lose(page, running)
    asked: list[str] = []
    page.on("request", lambda request: asked.append(urlsplit(request.url).path))
    assert eventually(lambda: page.wait_for_timeout(100) or asked.count("/v1/status") > 2)
    assert set(asked) <= {"/v1/status", "/v1/stats/stream"}


def test_a_socket_that_never_opened_is_followed_by_no_request_while_nobody_answers(
    page: Any, running: RunningService
) -> None:
    page.add_init_script(
        "window.WebSocket = class { constructor() { window.socket = this; }"
        " close() { this.left = true; } };"
    )
    page.reload()
    assert becomes(page, "Boolean(window.socket)")
    asked: list[str] = []
    page.on("request", lambda request: asked.append(urlsplit(request.url).path))
    lose(page, running)
    assert becomes(page, "window.socket.left")
    assert eventually(lambda: page.wait_for_timeout(100) or asked.count("/v1/status") > 2)
    assert "/v1/screen.png" not in asked


def test_a_socket_that_falls_silent_is_left_and_a_new_one_opened_once_the_daemon_answers(
    page: Any, running: RunningService
) -> None:
    """As where the machine of the daemon has vanished: no close event is ever seen."""
    page.add_init_script(
        "window.sockets = []; window.WebSocket = class {"
        " constructor() { sockets.push(this); setTimeout(() => this.onopen?.(), 10); }"
        " close() { this.left = true; } };"
    )
    page.reload()
    assert becomes(page, "sockets.length === 1")
    lose(page, running)
    assert becomes(page, "sockets[0].left")
    assert page.evaluate("sockets.length === 1 && sockets[0].onmessage === null")
    running.start()
    assert becomes(page, "sockets.length === 2")
    assert not page.evaluate("sockets[1].left")
