import re
import signal

import gymnasium as gym
import pytest
import stub_worlds

from rtagent.cli.stop_signal import interrupted_by_stop_signals
from rtagent.config import EnvConfig
from rtagent.env.adapter import open_environment
from tests.env.conftest import refusal, wrap


@pytest.mark.parametrize("name", ["stub_worlds:stub/World-v0", "stub_worlds:World"])
def test_a_module_names_an_id_or_a_class_that_nobody_registered(name):
    assert open_environment(EnvConfig(id=name, kwargs={"fps": 33})).rate_hz == 33.0
    assert "no such environment" in refusal(id="stub_worlds:Wurld")
    assert refusal(id="os:getcwd") == "env.id = os:getcwd: made a str, not a gymnasium.Env"


def test_an_environment_does_not_take_over_the_signals_that_end_a_program(monkeypatch):
    def robot():
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda *_: None)
        return stub_worlds.World()

    monkeypatch.setattr(stub_worlds, "robot", robot, raising=False)
    with interrupted_by_stop_signals():
        open_environment(EnvConfig(id="stub_worlds:robot"))
        for number in (signal.SIGINT, signal.SIGTERM):
            assert signal.getsignal(number) is signal.default_int_handler


def test_unknown_ids_suggest_near_ones():
    assert "did you mean CartPole-v1" in refusal(id="cartpol-v1")
    assert "did you mean rtagent/Starfall-v0" in refusal(id="rtagent/Starfal-v0")
    assert "; rtagent.env.gameboy.starfall registers rtagent/Starfall-v0" in refusal(
        id="rtagent.env.gameboy.starfall:Nothing-v0"
    )
    assert "package.module:EnvId-v0" in refusal(id="elsewhere/Whirlpool-v5")


def test_what_cannot_be_built_is_one_line():
    assert refusal(id="no_such_module:World-v0").endswith(
        "No module named 'no_such_module'; install it, or put its folder on PYTHONPATH"
    )
    assert refusal(id="not an id").startswith("env.id = not an id: Malformed environment ID")
    assert "unexpected keyword argument" in refusal(id="CartPole-v1", kwargs={"gravity": 1})
    raised = refusal(id="stub/Refusing-v0")
    assert re.search(r": RuntimeError: no track is plugged in \(.+stub_worlds\.py:\d+\)$", raised)


@pytest.mark.parametrize(("attributes", "line"), [
    ({"observations": gym.spaces.Text(3)}, "cannot use observations of Text.*"),
    ({"get_action_meanings": lambda: 1 / 0},
     rf"ZeroDivisionError: division by zero \({re.escape(__file__)}:\d+\)"),
])
def test_what_cannot_be_used_is_closed_and_named(attributes, line):
    closed = []
    kwargs = {**attributes, "close": lambda: closed.append(True)}
    told = refusal(id="stub/World-v0", kwargs=kwargs)
    assert re.fullmatch(f"env.id = stub/World-v0: {line}", told)
    assert closed == [True]


def test_an_environment_that_cannot_be_closed_costs_nothing_that_was_done(caplog):
    def close():
        raise OSError("\nthe window is gone\nand a second line")

    adapter, _ = wrap(close=close)
    adapter.close()
    assert "OSError: the window is gone" in caplog.text
    line = refusal(id="stub/World-v0", kwargs={"observations": gym.spaces.Text(3), "close": close})
    assert line.startswith("env.id = stub/World-v0: cannot use observations of Text")
