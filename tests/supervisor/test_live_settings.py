"""Settings that change while the run goes on: whole or not at all."""

from __future__ import annotations

from typing import Any

import pytest

from rtagent import load_config
from rtagent.errors import UserError
from rtagent.supervisor.live_settings import CHANGEABLE, Settings, change, first_orders, scaled


@pytest.fixture
def settings() -> Settings:
    config = load_config(overrides=["learning.processes=1", "learning.batch_size=32"])
    return Settings(config, first_orders(config))


def test_first_orders_follow_the_configuration() -> None:
    config = load_config(
        overrides=[
            "inference.processes=3", "learning.processes=2", "learning.order=first-come",
            "learning.batch_size=64", "r3.mode=step", "r3.deadline_s=7", "r3.data_budget=6400",
        ]
    )
    orders = first_orders(config)
    assert (orders.processes, orders.rows, orders.learners) == (3, 3, 2)
    assert (orders.learning_order, orders.batch_size) == ("first-come", 64)
    assert (orders.r3_mode, orders.deadline_s, orders.data_budget) == ("step", 7.0, 6400)
    assert not orders.go
    assert not orders.learning_paused


@pytest.mark.parametrize(
    ("section", "arguments", "name"),
    [
        ("inference", {"processes": 4}, "processes"),
        ("inference", {"injected_latency_ms": 82.5}, "injected_latency_ms"),
        ("learning", {"processes": 5}, "learners"),
        ("learning", {"batch_size": 8}, "batch_size"),
        ("learning", {"order": "first-come"}, "learning_order"),
        ("learning", {"paused": True}, "learning_paused"),
        ("r3", {"deadline_s": 3.5}, "deadline_s"),
        ("r3", {"data_budget": 999}, "data_budget"),
    ],
)
def test_a_change_reaches_the_orders(
    settings: Settings, section: str, arguments: dict[str, Any], name: str
) -> None:
    changed = change(settings, section, arguments)
    (wanted,) = arguments.values()
    assert getattr(changed.orders, name) == wanted
    assert changed.value(section) == settings.value(section) | arguments


def test_an_automatic_number_begins_with_what_there_is(settings: Settings) -> None:
    three = change(settings, "inference", {"processes": 3})
    auto = change(three, "inference", {"processes": "auto"})
    assert auto.value("inference")["processes"] == "auto"
    assert auto.orders.processes == 3
    more = scaled(auto, 7)
    assert (more.orders.processes, more.orders.rows) == (7, 7)
    assert more.value("inference") == auto.value("inference")
    fewer = scaled(more, 2)
    assert (fewer.orders.processes, fewer.orders.rows) == (2, 7)
    by_hand = change(fewer, "inference", {"processes": 5})
    assert (by_hand.orders.processes, by_hand.value("inference")["processes"]) == (5, 5)


def test_an_automatic_number_starts_with_one() -> None:
    config = load_config(overrides=["inference.processes=auto"])
    assert first_orders(config).processes == 1


def test_rows_never_shrink(settings: Settings) -> None:
    many = change(settings, "inference", {"processes": 9})
    few = change(many, "inference", {"processes": 2})
    assert (few.orders.processes, few.orders.rows) == (2, 9)


def test_what_is_paused_stays_paused(settings: Settings) -> None:
    paused = change(settings, "learning", {"paused": True})
    assert change(paused, "learning", {"batch_size": 16}).orders.learning_paused
    assert not change(paused, "learning", {"paused": False}).orders.learning_paused


@pytest.mark.parametrize(
    ("section", "arguments", "reason"),
    [
        ("learning", {"processes": 65}, "learning.processes = 65"),
        ("learning", {"processes": -1}, "learning.processes = -1"),
        ("learning", {"batch_size": 0}, "learning.batch_size = 0"),
        ("learning", {"paused": 1}, "learning.paused = 1"),
        ("learning", {"gamma": 0.5}, "learning.gamma: cannot be changed"),
        ("r3", {"deadline_s": 0}, "r3.deadline_s = 0"),
        ("r3", {"deadline_s": -2.0}, "r3.deadline_s = -2.0"),
        ("r3", {"data_budget": 31}, "r3.data_budget = 31 is smaller than one batch"),
        ("r3", {"mode": "step"}, "needs r3.data_budget"),
        ("r3", {"memory_budget_mb": 0}, "r3.memory_budget_mb = 0"),
        ("inference", {"processes": 0}, "inference.processes = 0"),
    ],
)
def test_a_bad_change_is_refused_whole(
    settings: Settings, section: str, arguments: dict[str, Any], reason: str
) -> None:
    good = {"processes": 2} if section != "r3" else {"deadline_s": 5.0}
    with pytest.raises(UserError, match=reason):
        change(settings, section, good | arguments)
    assert settings.orders == first_orders(settings.config)


def test_a_batch_larger_than_the_budget_is_refused(settings: Settings) -> None:
    limited = change(settings, "r3", {"mode": "step", "deadline_s": 5.0, "data_budget": 64})
    with pytest.raises(UserError, match="smaller than one batch"):
        change(limited, "learning", {"batch_size": 65})


def test_every_changeable_setting_is_shown(settings: Settings) -> None:
    for section, names in CHANGEABLE.items():
        assert set(settings.value(section)) == names
