import contextlib
import os
import signal
import socket
import threading
import time
from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from benchmarks.process_figures import gone
from rtagent.clock import MonotonicClock
from rtagent.config import EnvConfig
from rtagent.env.adapter import open_environment
from rtagent.env.default_action import DefaultBehaviour
from rtagent.env.donkey import connection as connection_module
from rtagent.env.donkey import environment as module
from rtagent.env.donkey.scenes import SCENES
from rtagent.processes.kernel_state import descendants
from tests.conftest import eventually, role

from .conftest import BRAKE, COAST, STRAIGHT_FAST, drive_while

pytestmark = pytest.mark.usefixtures("patient")


@pytest.mark.filterwarnings("ignore:.*")
def test_with_continuous_actions_it_is_a_proper_gymnasium_environment(simulator):
    host, port = simulator.at
    env = gym.make(
        "rtagent.env.donkey:donkey-generated-track-v0", host=host, port=port, rate_hz=60.0,
        actions="continuous",
    )
    check_env(env.unwrapped, skip_render_check=True)
    env.close()


def test_every_id_is_registered_with_its_scene():
    for name, scene in SCENES.items():
        assert gym.spec(name).kwargs == {"scene": scene}


def test_the_adapter_takes_it_by_its_bare_id(simulator):
    host, port = simulator.at
    config = EnvConfig(
        id="donkey-warehouse-v0", kwargs={"host": host, "port": port, "rate_hz": 60.0}
    )
    with contextlib.closing(open_environment(config)) as adapter:
        assert (adapter.rate_hz, adapter.frame_shape, adapter.screen) == (60.0, (84, 84), True)
        assert adapter.action_meanings[adapter.noop_action] == "COAST"
        assert DefaultBehaviour(config, adapter).noop == COAST
        frame = adapter.reset(seed=1)
        step = adapter.step(STRAIGHT_FAST)
        assert frame.shape == step.frame.shape == (84, 84)
        assert not step.terminated


def test_the_grid_is_what_its_words_say(fake, env):
    assert env.action_space == gym.spaces.Discrete(16)
    words = env.get_action_meanings()
    assert len(words) == len(set(words)) == 16
    for action, word, control in (
        (0, "COAST_HARD_LEFT", (-1.0, 0.0, 0.0)), (COAST, "COAST", (0.0, 0.0, 0.0)),
        (4, "COAST_HARD_RIGHT", (1.0, 0.0, 0.0)), (6, "SLOW_LEFT", (-0.5, 0.3, 0.0)),
        (STRAIGHT_FAST, "FAST", (0.0, 0.6, 0.0)), (14, "FAST_HARD_RIGHT", (1.0, 0.6, 0.0)),
        (BRAKE, "BRAKE", (0.0, 0.0, 1.0)),
    ):
        assert (words[action], sent_by(env, fake, action)) == (word, control)


def sent_by(env, fake, action):
    """The control that an action makes the environment send."""
    before = len(fake.controls)
    env.step(action)
    eventually(lambda: len(fake.controls) > before, "a control")
    return tuple(float(fake.controls[before][key]) for key in ("steering", "throttle", "brake"))


def test_the_box_is_steering_and_throttle(fake, make):
    env = make(fake.address, actions="continuous")
    assert env.action_space == gym.spaces.Box(
        np.array([-1, 0], np.float32), np.array([1, 1], np.float32), dtype=np.float32
    )
    env.reset()
    assert sent_by(env, fake, np.array([-0.25, 0.75], np.float32)) == (-0.25, 0.75, 0.0)
    assert sent_by(env, fake, env.noop_action) == (0.0, 0.0, 0.0)


@pytest.mark.parametrize("actions", ["grid", "continuous"])
def test_noop_may_mean_to_brake(fake, make, actions):
    env = make(fake.address, actions=actions, noop="brake")
    env.reset()
    assert sent_by(env, fake, env.noop_action) == (0.0, 0.0, 1.0)


@pytest.mark.parametrize(
    ("frame", "reward", "terminated"),
    [
        ({"speed": 2.0, "cte": 0.0}, 2.0, False),
        ({"speed": 2.0, "cte": -4.0}, 1.0, False),
        ({"speed": 2.0, "cte": 8.1}, -1.0, True),
        ({"speed": 2.0, "cte": -15.9}, -1.0, True),
        ({"speed": 2.0, "cte": 16.5}, -1.0, False),
        ({"speed": 2.0, "cte": 1.0, "hit": "barrier"}, -2.0, True),
        ({"speed": 2.0, "cte": 0.0, "vel_x": 0.0, "vel_z": -2.0, "yaw": 0.0}, -2.0, False),
        ({"speed": 2.0, "cte": 0.0, "vel_x": 2.0, "vel_z": 0.0, "yaw": 90.0}, 2.0, False),
        ({"speed": 2.0}, 2.0, False),
    ],
    ids=str,
)
def test_reward_and_end_follow_the_notes(fake, env, frame, reward, terminated):
    fake.frame = frame
    for _ in range(100):
        _, given, ended, truncated, info = env.step(COAST)
        if info["speed"] == 2.0:
            break
    assert (given, ended, truncated) == (pytest.approx(reward), terminated, False)


@pytest.mark.parametrize("event", ["missed_checkpoint", "DQ"])
def test_the_race_may_end_an_episode(fake, env, event):
    fake.send({"msg_type": event})
    assert any(env.step(COAST)[2] for _ in range(200))
    env.reset()
    assert not env.step(COAST)[2]


def test_a_race_that_stops_truncates_the_episode(fake, env):
    fake.send({"msg_type": "race_start"})
    drive_while(env, lambda info: not info["race"])
    fake.send({"msg_type": "race_stop"})
    *before, last = drive_while(env, lambda info: "race_stop" not in info["race"])
    assert last[4]["race"] == ["race_start", "race_stop"]
    # A race that stops may come between two frames; the episode ends with a frame.
    ends = [step[2:4] for step in before]
    assert set(ends) <= {(False, False)}
    if not last[3]:
        last = env.step(COAST)
    assert last[2:4] == (False, True)
    assert env.reset()[1]["race"] == []
    assert env.step(COAST)[2:4] == (False, False)


def test_laps_are_those_of_the_episode_as_in_the_public_client(fake, env):
    for lap, seconds in enumerate((30.5, 29.5)):
        fake.send({"msg_type": "cross_start", "lap_time": seconds})
        *_, (*_, info) = drive_while(env, lambda info, lap=lap: info["lap_count"] == lap)
        assert info["last_lap_time"] == seconds
    _, info = env.reset()
    assert (info["lap_count"], info["last_lap_time"], info["figures"]["laps"]) == (0, 0.0, 2)


def test_a_disqualification_terminates_even_as_the_race_stops(fake, env):
    fake.silence()
    while env.step(COAST)[4]["figures"].get("repeated", 0) < 2:
        pass
    fake.send(
        {"msg_type": "DQ", "missed_cp": False, "reason": "off the road"}, {"msg_type": "race_stop"}
    )
    fake.show(speed=1.0, cte=0.0)
    steps = [env.step(COAST)]
    while steps[-1][4]["speed"] != 1.0:
        steps.append(env.step(COAST))
    assert steps[-1][1:4] == (-1.0, True, False)


def test_a_long_episode_is_truncated(fake, make):
    env = make(fake.address, max_seconds=10 / 60)
    for _ in range(2):
        env.reset()
        ends = [env.step(COAST)[3] for _ in range(10)]
        assert ends == [False] * 9 + [True]


def test_an_episode_of_less_than_a_tick_is_truncated_at_its_first(fake, make):
    """0 means never, and a length was rounded to it."""
    env = make(fake.address, max_seconds=1e-3)
    env.reset()
    assert env.step(COAST)[3]


def test_a_reset_begins_at_the_start(simulator, make):
    env = make(simulator.at)
    env.reset()
    for _ in range(40):
        _, _, _, _, moved = env.step(STRAIGHT_FAST)
    assert moved["speed"] > 0.2
    _, info = env.reset()
    assert info["speed"] == 0.0
    assert not info["resetting"]
    assert info["pos"] != moved["pos"]
    assert info["figures"]["resets_unconfirmed"] == 0


def test_a_simulator_that_ignores_resets_hangs_nobody(fake, make, monkeypatch):
    monkeypatch.setattr(module, "RESET_S", 0.2)
    monkeypatch.setattr(connection_module, "RESET_AGAIN_S", 60.0)
    env = make(fake.address)
    fake.ignores_resets = 99
    # With a shorter time, `reset` would return after the reset had been given up.
    _, info = env.reset()
    assert info["resetting"]
    _, reward, terminated, truncated, _ = env.step(COAST)
    assert (reward, terminated, truncated) == (0.0, False, False)
    monkeypatch.setattr(connection_module, "RESET_AGAIN_S", 0.1)
    drive_while(env, lambda info: info["resetting"])


def test_who_falls_behind_catches_up(fake, env, monkeypatch):
    # On a busy machine one picture may take longer to decode than a look may last.
    monkeypatch.setattr(connection_module, "LOOK_S", 60.0)
    fake.silence()
    # Fall behind twice: the first time ends with a step that finds no frame.
    for _ in range(2):
        repeated = env.figures["repeated"]
        while env.step(COAST)[4]["figures"]["repeated"] == repeated:
            pass
        seen, skipped = [], env.figures["skipped"]
        for number in range(20):
            for part in range(3):
                fake.show(speed=3.0 * number + part, cte=0.0)
            seen.append(env.step(COAST)[4]["speed"])
        # In their order at first, then the newest.
        assert seen[:2] == [0.0, 1.0]
        assert seen[-5:] == [3.0 * number + 2 for number in range(15, 20)]
        assert env.figures["skipped"] > skipped + 20


@pytest.mark.realtime
def test_a_step_on_a_clock_of_its_own_never_lasts_a_tick(fake, make):
    """Whatever the phase between ticks and frames, each frame is used, and no tick waits long."""
    fake.silence()
    env = make(fake.address, rate_hz=20.0)
    env.paced = True
    env.reset()
    clock, period = MonotonicClock(), 1 / 20

    def keeps_step(phase):
        sender = _Every(fake, period)
        start, steps, before = sender.start + (1.0 - phase) * period, [], env.figures
        for tick in range(12):
            clock.sleep_until(start + tick * period)
            began = clock.now()
            env.step(COAST)
            steps.append(clock.now() - began)
        sender.stop()
        after = env.figures
        used, skipped = (after.get(of, 0) - before.get(of, 0) for of in ("used", "skipped"))
        told.append((phase, np.median(steps), used, skipped))
        return np.median(steps) < 0.5 * period and used >= 8 and skipped <= 2

    for phase in (0.1, 0.5, 0.9):
        told = []
        # A second try, for the machine may have held up the first.
        assert keeps_step(phase) or keeps_step(phase), told


class _Every:
    """Sends telemetry on an absolute schedule until it is told to stop."""

    def __init__(self, fake, period):
        self._stop = threading.Event()
        self.start = time.monotonic()
        self._thread = threading.Thread(target=self._send, args=(fake, period), daemon=True)
        self._thread.start()

    def _send(self, fake, period):
        number = 0
        while not self._stop.wait(self.start + number * period - time.monotonic()):
            fake.show(speed=0.0, cte=0.0)
            number += 1

    def stop(self):
        self._stop.set()
        self._thread.join()


def test_the_adapter_says_who_keeps_the_time_and_passes_news_on(fake):
    host, port = fake.address
    config = EnvConfig(id="donkey-warren-track-v0", kwargs={"host": host, "port": port})
    with contextlib.closing(open_environment(config)) as adapter:
        assert not adapter._env.unwrapped.paced
        adapter.keep_time()
        assert adapter._env.unwrapped.paced
        assert adapter.take_news() == ["driving in warren"]
        assert adapter.take_news() == []


@pytest.mark.process
def test_the_world_goes_on_without_its_simulator_and_says_so(run):
    with run("env.id=donkey-generated-track-v0", "env.kwargs.rate_hz=60") as runtime:

        def news():
            events = runtime.status()["events"]
            return [each["news"] for each in events if each["kind"] == "world"]

        def drives(times: int) -> bool:
            return len([line for line in news() if "driving" in line]) == times

        def ticks():
            return runtime.stats()["clock"]["ticks"]

        # A simulator that starts slowly is first said not to be connected.
        eventually(lambda: drives(1), "it drives")
        pid = role(runtime, "environment")["pid"]
        [simulator] = [
            child for child in descendants(pid)
            if Path(f"/proc/{child}/comm").read_text() == "rt-donkey-sim\n"
        ]
        os.kill(simulator, signal.SIGKILL)
        eventually(lambda: any("connection lost" in line for line in news()), "it is said")
        before = ticks()
        eventually(lambda: drives(2), "back")
        eventually(lambda: ticks() > before + 60, "it ticks")
        assert role(runtime, "environment")["restarts"] == 0
        assert role(runtime, "environment")["pid"] == pid
    eventually(lambda: gone(simulator), "nothing is left")


def test_a_road_can_be_asked_for(simulator, make):
    starts = []
    for seed in (1, 2):
        env = make(simulator.at, scene="generated_road", road={"rand_seed": seed})
        for _ in range(5):
            start = env.reset()[1]["pos"]
        starts.append(start)
    assert starts[0] != starts[1]


def test_a_control_that_finds_the_connection_broken_ends_the_episode(fake, make, monkeypatch):
    # In the step of so slow a clock there is time to connect anew.
    env = make(fake.address, rate_hz=1.0)
    env.paced = True
    env.reset()

    wire = env._connection._wire
    send, lost = wire.send, []

    def broken(message):
        if lost:
            return send(message)
        lost.append(message)
        raise OSError("broken pipe")

    monkeypatch.setattr(wire, "send", broken)
    *_, truncated, info = env.step(COAST)
    assert (truncated, info["connected"]) == (True, False)
    given = drive_while(env, lambda info: not info["connected"])
    assert [truncated for *_, truncated, _ in given] == [False] * (len(given) - 1) + [True]


def test_where_no_thread_is_left_for_a_look_up_it_is_tried_again(fake, env, monkeypatch):
    refused = []

    def none_left(thread):
        refused.append(thread)
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as full:
        full.setattr(threading.Thread, "start", none_left)
        fake.drop()
        drive_while(env, lambda info: not refused)
    drive_while(env, lambda info: not info["connected"])


def test_a_name_that_nobody_knows_for_a_while_holds_up_no_step(fake, env, monkeypatch):
    """Where the network is cut, a look-up takes many seconds."""
    known, looking = threading.Event(), []
    look_up = socket.getaddrinfo

    def slow(*given, **options):
        looking.append(threading.current_thread())
        assert looking[-1] is not threading.main_thread()
        assert known.wait(60.0)
        return look_up(*given, **options)

    monkeypatch.setattr(socket, "getaddrinfo", slow)
    fake.drop()
    drive_while(env, lambda info: not looking)
    for _ in range(3):
        assert not env.step(COAST)[4]["connected"]
    known.set()
    drive_while(env, lambda info: not info["connected"])
    assert len(looking) == 1
