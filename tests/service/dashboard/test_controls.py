"""What can be changed from the page, and what it answers."""

from __future__ import annotations

from typing import Any

import pytest

from rtagent.errors import UserError
from tests.service.conftest import RunningService, eventually
from tests.service.dashboard.conftest import (
    event,
    expect_attribute,
    expect_text,
    expect_value,
    form,
    verdict,
)

pytestmark = pytest.mark.browser


def test_changes_the_number_of_processes(page: Any, running: RunningService) -> None:
    inference = form(page, "inference")
    expect_text(verdict(page, "health"), "Nothing is broken")
    inference.get_by_label("Processes").fill("5")
    page.keyboard.press("Enter")
    expect_text(inference.locator("output"), r"In force: processes 5\.")
    assert running.backend.commands == [("inference", {"processes": 5})]
    expect_text(page.locator("#verdict-acting .detail"), "2 of 5 processes act")
    inference.get_by_label("Algorithm").select_option("maximum-time")
    inference.get_by_label("Action deadline").fill("33.5")
    inference.get_by_label("Injected latency").fill("82")
    inference.get_by_role("button", name="Apply").click()
    expect_text(inference.locator("output"), "algorithm maximum-time, action deadline, ms 33.5, "
                "injected latency, ms 82")
    assert running.backend.commands[1:] == [("inference", {
        "algorithm": "maximum-time", "action_deadline_ms": 33.5, "injected_latency_ms": 82,
    })]
    inference.get_by_label("Action deadline").fill("")
    page.keyboard.press("Enter")
    expect_text(inference.locator("output"), "action deadline, ms one tick")
    assert running.backend.commands[2] == ("inference", {"action_deadline_ms": None})


def test_the_number_of_processes_can_be_automatic(page: Any, running: RunningService) -> None:
    inference = form(page, "inference")
    processes = inference.get_by_label("Processes")
    expect_value(processes, "2")
    inference.get_by_label("auto").check()
    assert processes.is_disabled()
    inference.get_by_role("button", name="Apply").click()
    expect_text(inference.locator("output"), r"In force: processes auto\.")
    assert running.backend.commands == [("inference", {"processes": "auto"})]
    page.reload()
    assert eventually(inference.get_by_label("auto").is_checked)
    inference.get_by_label("auto").uncheck()
    processes.fill("3")
    page.keyboard.press("Enter")
    expect_text(inference.locator("output"), r"In force: processes 3\.")


def test_changes_learning_and_deadlines(page: Any, running: RunningService) -> None:
    learning, deadlines = form(page, "learning"), form(page, "deadlines")
    expect_value(learning.get_by_label("Learners"), "1")
    learning.get_by_role("button", name="Pause learning").click()
    expect_text(learning.locator("output"), "In force: learning is paused")
    learning.get_by_role("button", name="Resume learning").click()
    expect_text(learning.locator("output"), "In force: learning goes on")
    learning.get_by_label("Learners").fill("2")
    learning.get_by_label("Batch size").fill("64")
    page.keyboard.press("Enter")
    expect_text(learning.locator("output"), "In force: learners 2, batch size 64")
    deadlines.get_by_label("Mode").select_option("step")
    deadlines.get_by_label("Deadline, s").fill("60")
    deadlines.get_by_label("Data, samples").fill("100000")
    deadlines.get_by_label("Memory, MiB").fill("900")
    deadlines.get_by_role("button", name="Apply").click()
    expect_text(deadlines.locator("output"), "In force: mode step, deadline, s 60")
    assert running.backend.commands == [
        ("learning", {"paused": True}),
        ("learning", {"paused": False}),
        ("learning", {"processes": 2, "batch_size": 64}),
        ("r3", {"mode": "step", "deadline_s": 60, "data_budget": 100_000,
                           "memory_budget_mb": 900}),
    ]


def test_writes_a_checkpoint(page: Any, running: RunningService) -> None:
    page.get_by_role("button", name="Write a checkpoint").click()
    expect_text(page.locator("#checkpoint output"), "Written: checkpoint-000000004100")
    running.backend.may_write.clear()
    page.get_by_role("button", name="Write a checkpoint").click()
    expect_text(page.locator("#checkpoint output"), "Writing …")
    running.backend.may_write.set()
    expect_text(page.locator("#checkpoint output"), "Written: checkpoint-000000004100")
    running.backend.failure = UserError("no learner runs")
    page.get_by_role("button", name="Write a checkpoint").click()
    expect_text(page.locator("#checkpoint output"), r"Not written\. no learner runs")


def test_shows_why_a_change_was_refused(page: Any, running: RunningService) -> None:
    inference = form(page, "inference")
    expect_value(inference.get_by_label("Processes"), "2")
    inference.get_by_label("Processes").fill("257")
    page.keyboard.press("Enter")
    expect_text(inference.locator("output"), r"Not changed\. processes")
    running.backend.failure = UserError("too little memory for 200 processes")
    inference.get_by_label("Processes").fill("200")
    page.keyboard.press("Enter")
    expect_text(inference.locator("output"), "too little memory for 200 processes")
    expect_attribute(inference.locator("output"), "data-kind", "refused")
    expect_text(inference.locator(".edited .now"), "^now 2$")
    inference.get_by_role("button", name="Discard").click()
    expect_value(inference.get_by_label("Processes"), "2")


def test_settings_that_cannot_be_read_are_not_shown_as_none(
    blank: Any, running: RunningService
) -> None:
    blank.route("**/v1/deadlines", lambda route: route.fulfill(status=500, json={"detail": "no"}))
    blank.goto(running.login_url())
    deadlines = form(blank, "deadlines")
    expect_text(deadlines.locator("output"), "cannot be read at the moment")
    assert deadlines.get_by_label("Deadline, s").is_disabled()
    assert eventually(form(blank, "learning").get_by_label("Learners").is_enabled)


def test_what_is_edited_is_not_overwritten(page: Any, running: RunningService) -> None:
    inference = form(page, "inference")
    processes = inference.get_by_label("Processes")
    expect_value(processes, "2")
    processes.fill("7")
    running.backend.settings.update(processes=4, algorithm="expected-time")
    running.backend.history.insert(0, event(1, "set", "inference", before={"processes": 2},
                                            after={"processes": 4}, by="http"))
    expect_text(page.locator("#events"), "processes 2 → 4")
    expect_value(processes, "7")
    page.keyboard.press("Enter")
    expect_text(inference.locator("output"), "somebody else has changed these settings")
    assert running.backend.commands == []
    expect_value(processes, "7")
    expect_value(inference.get_by_label("Algorithm"), "expected-time")
    expect_text(inference.locator(".edited .now"), "^now 4$")
    inference.get_by_role("button", name="Apply").click()
    expect_text(inference.locator("output"), r"In force: processes 7\.")
    assert running.backend.commands == [("inference", {"processes": 7})]
