"""What can be changed from the page, and what it answers."""

from __future__ import annotations

from typing import Any

import pytest

from rtagent.errors import UserError
from rtagent.live_config import KEYS
from service.daemon.commands import BackendLate
from tests.forked import eventually
from tests.service.conftest import RunningService
from tests.service.dashboard.conftest import (
    control,
    event,
    expect_attribute,
    expect_text,
    expect_value,
    form,
    verdict,
)

pytestmark = pytest.mark.browser


def write_checkpoint(page: Any, said: str) -> None:
    """Ask for a checkpoint, and wait for what is said of it."""
    page.get_by_role("button", name="Write a checkpoint").click()
    expect_text(page.locator("#checkpoint output"), said)


def test_every_live_setting_has_its_control(page: Any, running: RunningService) -> None:
    controls = page.locator("#settings [name]")
    assert [each.get_attribute("name") for each in controls.all()] == KEYS
    labels = page.evaluate(
        "[...document.querySelectorAll('#settings [name]')].map((each) =>"
        " each.labels[0].textContent.trim())"
    )
    assert {"Fill", "Learning rate", "Deadline, s", "Memory budget, MiB", "Paused"} <= set(labels)
    fill = control(page, "inference.fill")
    assert [fill.get_attribute(name) for name in ("min", "max", "step")] == ["0", "2", "1"]
    fill.focus()
    expect_text(page.locator("#help"), r"^inference\.fill How many ticks .* 0 to 2\. In force at "
                r"the next tick\.$")
    control(page, "learning.learning_rate").hover()
    expect_text(page.locator("#help"), r"Above 0, at most 1\.")


def test_changes_settings(page: Any, running: RunningService) -> None:
    answer, commands = form(page).locator("output"), running.backend.commands
    expect_text(verdict(page, "health"), "Nothing is broken")
    control(page, "inference.processes").fill("5")
    page.keyboard.press("Enter")
    expect_text(answer, r"In force: inference\.processes = 5\.")
    assert commands.pop() == ("inference", {"processes": 5})
    expect_text(page.locator("#verdict-acting .detail"), "2 of 5 processes run")
    control(page, "inference.algorithm").select_option("maximum-time")
    control(page, "inference.action_deadline_ms").fill("33.5")
    control(page, "learning.batch_size").fill("64")
    control(page, "learning.learning_rate").fill("0.001")
    control(page, "r3.memory_budget_mb").fill("900")
    form(page).get_by_role("button", name="Apply").click()
    expect_text(answer, r"algorithm = maximum-time, inference\.action_deadline_ms = 33\.5, "
                r"learning\.batch_size = 64, learning\.learning_rate = 0\.001, r3\.memory")
    assert commands == [
        ("inference", {"algorithm": "maximum-time", "action_deadline_ms": 33.5}),
        ("learning", {"batch_size": 64, "learning_rate": 0.001}),
        ("r3", {"memory_budget_mb": 900}),
    ]
    control(page, "inference.action_deadline_ms").fill("")
    page.keyboard.press("Enter")
    expect_text(answer, r"inference\.action_deadline_ms = none")
    assert commands[3] == ("inference", {"action_deadline_ms": None})


def test_a_number_can_be_automatic(page: Any, running: RunningService) -> None:
    processes, auto = control(page, "inference.processes"), form(page).get_by_label("auto")
    expect_value(processes, "2")
    auto.check()
    assert processes.is_disabled()
    form(page).get_by_role("button", name="Apply").click()
    expect_text(form(page).locator("output"), r"In force: inference\.processes = auto\.")
    assert running.backend.commands == [("inference", {"processes": "auto"})]
    page.reload()
    assert eventually(auto.is_checked)
    auto.uncheck()
    processes.fill("3")
    page.keyboard.press("Enter")
    expect_text(form(page).locator("output"), r"In force: inference\.processes = 3\.")


def test_no_click_meets_what_has_just_moved(page: Any, running: RunningService) -> None:
    for path in ("stats/stream", "timeline"):
        page.route(f"**/v1/{path}*", lambda route: route.abort())
    page.reload()
    paused = control(page, "learning.paused")
    assert eventually(paused.is_enabled)
    with pytest.raises(Exception, match="intercepts pointer events"):
        paused.click(timeout=3000)
    page.unroute("**/v1/stats/stream*")
    paused.click()
    assert eventually(lambda: running.backend.commands == [("learning", {"paused": True})])
    height = "document.querySelector('#settings').getBoundingClientRect().y + scrollY"
    before = page.evaluate(height)
    page.unroute("**/v1/timeline*")
    expect_text(page.locator("#delays-note"), r"the newest \d+ ticks")
    assert page.evaluate(height) == before


def test_a_control_at_the_edge_of_the_window_is_not_covered_while_it_is_pressed(
    page: Any, running: RunningService
) -> None:
    paused = control(page, "learning.paused")
    assert eventually(paused.is_enabled)
    paused.evaluate("it => scrollBy(0, it.getBoundingClientRect().bottom - innerHeight + 2)")
    paused.click()
    expect_text(form(page).locator("output"), r"In force: learning\.paused = yes\.")
    page.locator("h1").click()
    paused.evaluate("it => scrollBy(0, it.getBoundingClientRect().top - innerHeight - 2)")
    paused.focus()
    foot = form(page).locator(".foot").bounding_box()
    place = paused.bounding_box()
    assert place["y"] + place["height"] < foot["y"]


@pytest.mark.parametrize("above_the_edge", [6, 60, 110, 400])
def test_a_tap_meets_what_was_there(
    browser: Any, running: RunningService, above_the_edge: int
) -> None:
    page = browser.new_page(viewport={"width": 412, "height": 839}, has_touch=True)
    page.goto(running.login_url())
    size = control(page, "learning.batch_size")
    expect_value(size, "32")
    assert eventually(lambda: page.evaluate("!document.body.classList.contains('waiting')"))
    page.evaluate("addEventListener('click', ({ target }) => { window.met = target; }, true)")
    size.evaluate(
        "(it, above) => scrollBy(0, it.getBoundingClientRect().bottom - innerHeight + above)",
        above_the_edge,
    )
    box = size.bounding_box()
    page.evaluate("([x, y]) => { window.seen = document.elementFromPoint(x, y); }",
                  place := [box["x"] + 9, box["y"] + 9])
    page.touchscreen.tap(*place)
    page.wait_for_function("window.met")
    assert page.evaluate("window.met === window.seen")
    page.close()


def test_a_switch_acts_at_once(page: Any, running: RunningService) -> None:
    paused, answer = control(page, "learning.paused"), form(page).locator("output")
    control(page, "inference.processes").fill("7")
    paused.focus()
    for said in ("yes", "no"):
        page.keyboard.press("Space")
        expect_text(answer, rf"In force: learning\.paused = {said}\.")
    assert running.backend.commands == [("learning", {"paused": True}),
                                        ("learning", {"paused": False})]
    running.backend.failure = UserError("not now")
    paused.click()
    expect_text(answer, r"^Not changed: not now\.$")
    assert not paused.is_checked()
    expect_value(control(page, "inference.processes"), "7")


def test_a_free_value_is_a_number_or_a_list_where_it_reads_as_one(
    page: Any, running: RunningService
) -> None:
    action = control(page, "env.default_action")
    expect_value(action, "noop")
    for text, value in (("2", 2), ("[0.5, -1]", [0.5, -1]), ("repeat", "repeat")):
        action.fill(text)
        page.keyboard.press("Enter")
        expect_text(form(page).locator("output"), r"In force: env\.default_action")
        assert running.backend.commands.pop() == ("env", {"default_action": value})
        expect_value(action, text.replace(" ", ""))


def test_writes_a_checkpoint(page: Any, running: RunningService) -> None:
    write_checkpoint(page, "Written: checkpoint-000000004100")
    running.backend.may_write.clear()
    write_checkpoint(page, "Writing …")
    running.backend.may_write.set()
    expect_text(page.locator("#checkpoint output"), "Written: checkpoint-000000004100")
    # It began with "Not written", too.
    running.backend.failure = UserError("checkpoint-4100 is written, but not the replay: no room")
    write_checkpoint(page, r"^Failed: checkpoint-4100 is written, but ")


def test_a_change_that_is_late_is_not_told_as_refused(page: Any, running: RunningService) -> None:
    processes, answer = control(page, "inference.processes"), form(page).locator("output")
    running.backend.failure = BackendLate("accepted and under way")
    processes.fill("3")
    page.keyboard.press("Enter")
    expect_text(answer, r"^Not in force yet: accepted and under way\.$")
    # The form shows the daemon's value, and no longer the entered one.
    expect_value(processes, "2")
    write_checkpoint(page, r"^Not written yet: accepted and under way\.$")


PROXY_TIMEOUT = {"status": 504, "body": "<html>", "content_type": "text/html"}
PROXY_LOGIN = {**PROXY_TIMEOUT, "status": 200}
GONE = {"status": 503, "json": {"type": "urn:rtagent:problem:supervisor-gone", "detail": "x"}}


@pytest.mark.parametrize(
    "answer", [None, PROXY_TIMEOUT, PROXY_LOGIN, GONE, {"status": 500, "json": {"detail": "x"}}]
)
def test_a_change_without_an_answer_of_the_daemon_is_not_told_as_refused(
    page: Any, running: RunningService, answer: dict[str, Any] | None
) -> None:
    """It may have been sent before the connection broke."""

    def fail(route: Any) -> None:
        if route.request.method == "GET":
            route.continue_()
        elif answer is None:
            route.abort("connectionreset")
        else:
            route.fulfill(**answer)

    processes, told = control(page, "inference.processes"), form(page).locator("output")
    expect_value(processes, "2")
    for path in ("config", "checkpoints"):
        page.route(f"**/v1/{path}", fail)
    processes.fill("3")
    running.backend.live["inference"]["processes"] = 3
    page.keyboard.press("Enter")
    expect_text(told, "^No answer came, so it is not known whether this was changed")
    # The form shows the daemon's value: the change had come into force.
    expect_value(processes, "3")
    assert form(page).locator(".edited").count() == 0
    write_checkpoint(page, "not known whether it was written")


def test_shows_why_a_change_was_refused(page: Any, running: RunningService) -> None:
    processes, answer = control(page, "inference.processes"), form(page).locator("output")
    expect_value(processes, "2")
    processes.fill("257")
    page.keyboard.press("Enter")
    expect_text(answer, r"^Not changed: inference\.processes")
    running.backend.failure = UserError("too little memory for 200 processes")
    processes.fill("200")
    page.keyboard.press("Enter")
    expect_text(answer, "too little memory for 200 processes")
    expect_attribute(answer, "data-kind", "refused")
    expect_text(form(page).locator(".edited .now"), "^now 2$")
    processes.fill("2")
    assert eventually(lambda: form(page).locator(".edited").count() == 0)
    form(page).get_by_role("button", name="Discard").click()
    # The next key goes on from here, although the button is gone.
    assert page.evaluate("document.activeElement.textContent") == "Apply"
    expect_value(processes, "2")


def test_settings_that_cannot_be_read_are_not_shown_as_none(
    blank: Any, running: RunningService
) -> None:
    blank.route("**/v1/config", lambda route: route.fulfill(status=500, json={"detail": "no"}))
    blank.goto(running.login_url())
    expect_text(form(blank).locator("output"), "cannot be read at the moment")
    assert control(blank, "r3.deadline_s").is_disabled()
    blank.unroute("**/v1/config")
    blank.reload()
    assert eventually(control(blank, "r3.deadline_s").is_enabled)


def test_what_is_edited_is_not_overwritten(page: Any, running: RunningService) -> None:
    processes, answer = control(page, "inference.processes"), form(page).locator("output")
    expect_value(processes, "2")
    processes.fill("7")
    running.backend.live["inference"].update(processes=4, algorithm="expected-time")
    running.backend.history.insert(0, event(1, "set", "inference", before={"processes": 2},
                                            after={"processes": 4}, by="http"))
    expect_text(page.locator("#events"), "processes 2 → 4")
    expect_value(processes, "7")
    page.keyboard.press("Enter")
    expect_text(answer, "somebody else has changed these settings")
    assert running.backend.commands == []
    expect_value(processes, "7")
    expect_value(control(page, "inference.algorithm"), "expected-time")
    expect_text(form(page).locator(".edited .now"), "^now 4$")
    form(page).get_by_role("button", name="Apply").click()
    expect_text(answer, r"In force: inference\.processes = 7\.")
    assert running.backend.commands == [("inference", {"processes": 7})]


def test_settings_are_said_to_be_in_force_until_they_change_again(
    page: Any, running: RunningService
) -> None:
    """From another page, or with another run."""
    processes, answer = control(page, "inference.processes"), form(page).locator("output")
    live, history = running.backend.live["inference"], running.backend.history
    expect_value(processes, "2")
    processes.fill("5")
    page.keyboard.press("Enter")
    for now, said in ((5, r"^In force: inference\.processes = 5\.$"), (3, "^$")):
        expect_text(answer, r"^In force: inference\.processes = 5\.$")
        live["processes"] = now
        with page.expect_response("**/v1/config"):
            history.insert(0, event(9 - now, "set", "inference", after={"processes": now}))
        page.wait_for_timeout(100)
        expect_value(processes, str(now))
        expect_text(answer, said)


def test_a_refusal_is_read_although_the_settings_are_read_twice_at_once(
    page: Any, running: RunningService
) -> None:
    """For the refusal, and for the event of the change of another page."""
    paused, answer = control(page, "learning.paused"), form(page).locator("output")
    assert eventually(paused.is_enabled)
    running.backend.live["inference"]["processes"] = 4
    asked: list[Any] = []
    page.route("**/v1/config", lambda route: asked.append(route)
               if route.request.method == "GET" else route.continue_())
    paused.click()
    assert eventually(lambda: page.wait_for_timeout(20) or asked)
    running.backend.history.insert(0, event(1, "set", "inference", after={"processes": 4}))
    page.locator("#event-kind").dispatch_event("change")
    assert eventually(lambda: page.wait_for_timeout(20) or len(asked) > 1)
    for route in asked[:2]:
        with page.expect_response("**/v1/config"):
            route.continue_()
        page.wait_for_timeout(100)
        expect_text(answer, "somebody else has changed these settings")


def test_what_is_edited_again_while_it_is_sent_stays_edited(
    page: Any, running: RunningService
) -> None:
    """To start processes takes seconds, in which one may think of another number."""
    processes, answer = control(page, "inference.processes"), form(page).locator("output")
    expect_value(processes, "2")
    running.backend.may_answer.clear()
    processes.fill("3")
    page.keyboard.press("Enter")
    assert eventually(lambda: running.backend.commands)
    processes.fill("5")
    running.backend.may_answer.set()
    expect_text(answer, r"^In force: inference\.processes = 3\.$")
    expect_value(processes, "5")
    expect_text(form(page).locator(".edited .now"), "^now 3$")
