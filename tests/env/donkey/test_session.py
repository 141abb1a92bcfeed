import base64
import io
import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from rtagent.env.donkey.drive import BARRIER_NAME
from rtagent.env.donkey.race import PING_S, Rules
from rtagent.env.donkey.scenes import SCENES
from rtagent.env.donkey.session import REPORTED_SCALE, Session
from rtagent.env.donkey.telemetry import read
from rtagent.env.donkey.track import BARRIER

FPS = 60
DOCUMENTED = {
    "steering_angle", "throttle", "speed", "image", "hit", "time", "accel_x", "accel_y", "accel_z",
    "gyro_x", "gyro_y", "gyro_z", "pitch", "yaw", "roll", "activeNode", "totalNodes", "cte",
    "pos_x", "pos_y", "pos_z", "vel_x", "vel_y", "vel_z",
}


def session(scene="generated_track", **options):
    """A car at the start of a scene; with `rules`, in the lobby of a race."""
    new = Session(**options)
    loaded = "need_car_config" if "rules" in options else "car_loaded"
    assert new.handle({"msg_type": "load_scene", "scene_name": scene}) == [{"msg_type": loaded}]
    return new


def control(steering, throttle, brake=0.0):
    """A control as clients send it: numbers as strings."""
    texts = {"steering": str(steering), "throttle": str(throttle), "brake": str(brake)}
    return {"msg_type": "control", **texts}


def drive(of, seconds, steer, throttle=0.35):
    """Drive for some seconds, steered by a function of the drive; the messages meanwhile."""
    said = []
    for _ in range(round(seconds * FPS)):
        of.handle(control(steer(of.drive), throttle))
        said += of.advance(1 / FPS)
    return said


def kinds(said):
    return [each["msg_type"] for each in said]


def put(of, rounds):
    """Put the car elsewhere on the centre line, standing, heading along the road."""
    x, z, heading = of.drive.track.point_at(rounds * of.drive.track.length)
    turned = {"Qx": 0.0, "Qy": np.sin(heading / 2), "Qz": 0.0, "Qw": np.cos(heading / 2)}
    of.handle({"msg_type": "set_position", "pos_x": x, "pos_z": z, **turned})


def along(drive_):
    """Steer back to the line, a little ahead of the car."""
    car = drive_.car
    heading = drive_.track.point_at(drive_.place.progress + 5.0)[2]
    turn = (heading - car.yaw + np.pi) % (2 * np.pi) - np.pi
    return float(np.clip(2.5 * turn - 0.25 * drive_.place.cte, -1, 1))


def test_the_handshake_is_the_one_of_the_notes():
    new = Session()
    assert new.greet() == [{"msg_type": "scene_selection_ready", "loaded": "1"}]
    assert new.telemetry() is None
    [names] = new.handle({"msg_type": "get_scene_names"})
    assert names["scene_names"] == list(SCENES.values())
    said = new.handle({"msg_type": "load_scene", "scene_name": "warehouse"})
    assert said == [{"msg_type": "car_loaded"}]
    assert new.refused == 0


@pytest.mark.parametrize("scene", ["generated_track", "generated_road", "mini_monaco"])
def test_telemetry_has_every_field_and_travels_as_json(scene):
    telemetry = session(scene).telemetry()
    assert set(telemetry) == DOCUMENTED | {"msg_type"}
    again = json.loads(json.dumps(telemetry, allow_nan=False))
    frame = read(again, (120, 160, 3))
    assert not frame.resized
    assert (frame.speed, frame.hit) == (0.0, "none")
    assert abs(frame.cte) < 0.5


def test_telemetry_tells_where_the_car_is_and_how_it_moves():
    of = session()
    drive(of, 3.0, along)
    before, car_before = of.telemetry(), (of.drive.car.x, of.drive.car.z)
    drive(of, 0.1, along)
    frame = read(of.telemetry(), (120, 160, 3))
    x, _, z = frame.info["pos"]
    assert (x, z) == pytest.approx(
        (of.drive.car.x * REPORTED_SCALE, of.drive.car.z * REPORTED_SCALE)
    )
    moved = np.hypot(of.drive.car.x - car_before[0], of.drive.car.z - car_before[1])
    assert frame.forward_velocity == pytest.approx(moved / 0.1 * REPORTED_SCALE, rel=0.05)
    assert frame.forward_velocity == pytest.approx(frame.speed)
    assert before["time"] + 0.1 == pytest.approx(frame.info["time"])


def test_controls_are_clamped_as_the_simulator_does():
    of = session()
    of.handle(control(-7, 9, -3))
    assert (of.controls.steering, of.controls.throttle, of.controls.brake) == (-1.0, 1.0, 0.0)


def test_the_barrier_stops_a_car_and_is_reported_once_per_hit():
    of = session()
    drive(of, 6.0, lambda _: 0.3, throttle=0.6)
    assert abs(of.drive.place.cte) <= BARRIER + 0.5
    assert of.telemetry()["hit"] == BARRIER_NAME
    of.handle(control(0, 0, 1))
    for _ in range(FPS):
        of.advance(1 / FPS)
    of.telemetry()
    assert of.telemetry()["hit"] == "none"
    assert of.drive.car.speed == 0.0


def test_a_reset_puts_the_car_at_the_start_at_once():
    of = session()
    start = of.telemetry()
    drive(of, 4.0, along)
    of.handle({"msg_type": "reset_car"})
    assert of.wants_telemetry
    again = of.telemetry()
    for key in ("pos_x", "pos_z", "yaw", "speed", "cte", "activeNode"):
        assert again[key] == pytest.approx(start[key], abs=1e-9)
    # Nobody drives until the client says so.
    of.advance(0.5)
    assert of.drive.car.speed == 0.0


@pytest.mark.parametrize(("asked", "mode"), [("JPG", "JPEG"), ("PNG", "PNG"), ("TGA", "TGA")])
def test_the_camera_is_as_asked_for(asked, mode):
    of = session()
    of.handle({
        "msg_type": "cam_config", "img_w": "64", "img_h": "48", "img_d": "3", "img_enc": asked,
        "fov": "0", "offset_x": "0.0",
    })
    of.handle({"msg_type": "cam_config_b", "img_w": "80", "img_h": "60", "img_d": "1"})
    telemetry = of.telemetry()
    first, second = (
        Image.open(io.BytesIO(base64.b64decode(telemetry[key]))) for key in ("image", "imageb")
    )
    assert (first.size, first.mode, first.format) == ((64, 48), "RGB", mode)
    assert (second.size, second.mode) == ((80, 60), "L")


def test_a_seed_is_a_road_and_a_track_can_be_forced():
    def points(scene, **options):
        return session(scene, **options).drive.track.points

    one, other = (points("generated_road", seed=seed) for seed in (1, 2))
    assert np.array_equal(one, points("generated_road", seed=1))
    assert not np.array_equal(one, other)
    assert np.array_equal(points("warren", seed=1), points("warren", seed=2))
    assert np.array_equal(points("warren", track="circuit"), points("generated_track", seed=2))


def test_regen_road_makes_another_road():
    of = session("generated_road")
    before = of.drive.track.points
    of.handle({"msg_type": "regen_road", "road_style": "2", "rand_seed": "5"})
    assert not np.array_equal(before, of.drive.track.points)
    assert of.refused == 0


def test_step_mode_stops_the_worlds_clock():
    of = session()
    of.handle({"msg_type": "step_mode", "step_mode": "synchronous", "time_step": "0.05"})
    of.handle(control(0, 1))
    assert of.wants_telemetry
    assert of.time == pytest.approx(0.05)
    assert of.drive.car.speed > 0.0
    of.handle({"msg_type": "step_mode", "step_mode": "asynchronous", "time_step": "0.05"})
    of.telemetry()
    of.handle(control(0, 1))
    assert not of.wants_telemetry
    assert of.time == pytest.approx(0.05)


def test_a_car_can_be_put_at_a_node():
    of = session()
    [node] = of.handle({"msg_type": "node_position", "index": "20"})
    assert node["msg_type"] == "node_position"
    of.handle({
        "msg_type": "set_position",
        **{key: str(node[key]) for key in ("pos_x", "pos_y", "pos_z", "Qx", "Qy", "Qz", "Qw")},
    })
    assert abs(of.drive.place.cte) < 0.01
    assert of.drive.place.node in (19, 20)
    x, z, heading = of.drive.track.node_at(20)
    assert (of.drive.car.x, of.drive.car.z) == pytest.approx((x, z))
    assert np.cos(of.drive.car.yaw - heading) == pytest.approx(1.0)


def test_a_race_begins_with_the_cars_configuration():
    of = session(rules=Rules(1, 60.0, 8))
    # In the lobby a car stands, whatever is asked of it.
    said = drive(of, PING_S + 0.1, along, throttle=1.0)
    assert said == [{"msg_type": "ping"}]
    assert of.drive.car.speed == 0.0
    assert read(of.telemetry(), (120, 160, 3)).speed == 0.0
    assert of.handle({"msg_type": "car_config", "body_r": "x"}) == []
    assert of.race.in_lobby
    assert of.handle({"msg_type": "car_config"}) == [{"msg_type": "race_start"}]
    assert of.handle({"msg_type": "car_config"}) == []
    drive(of, 1.0, along)
    assert of.drive.car.speed > 0.0


def test_a_race_of_one_lap_is_said_in_order():
    of = session(rules=Rules(1, 100.0, 8))
    said = of.handle({"msg_type": "car_config"})
    while of.time < 100.0 and said[-1]["msg_type"] != "race_stop":
        said += drive(of, 0.1, along)
    told = [kind for kind in kinds(said) if kind != "ping"]
    assert told == [
        "race_start", "collision_with_starting_line", "collision_with_starting_line",
        "cross_start", "race_stop",
    ]
    assert kinds(said).count("ping") == int(of.time / PING_S)
    # The car may drive on.
    assert set(kinds(drive(of, 6.0, along))) == {"ping"}


@pytest.mark.parametrize("message", [
    {"msg_type": "reset_car"}, {"msg_type": "regen_road", "rand_seed": "5"},
], ids=str)
def test_a_race_begins_anew_with_the_car(message):
    of = session(rules=Rules(1, 6.0, 8))
    assert of.handle(message) == []
    assert of.race.in_lobby
    of.handle({"msg_type": "car_config"})
    assert "ping" in kinds(drive(of, 5.9, along))
    assert of.handle(message) == [{"msg_type": "race_start"}]
    assert "DQ" not in kinds(drive(of, 5.9, along))
    said = drive(of, 0.2, along)
    assert said == [
        {"msg_type": "DQ", "missed_cp": False, "reason": "time limit exceeded"},
        {"msg_type": "race_stop"},
    ]
    # After the race, too.
    assert of.handle(message) == [{"msg_type": "race_start"}]


def test_a_race_is_lost_off_the_road():
    of = session(rules=Rules(1, 60.0, 8))
    of.handle({"msg_type": "car_config"})
    said = drive(of, 6.0, lambda _: 0.3, throttle=0.6)
    assert [each.get("reason") for each in said if each["msg_type"] == "DQ"] == ["off the road"]


def test_who_is_put_elsewhere_in_a_race_has_left_checkpoints_out():
    of = session(rules=Rules(1, 60.0, 8))
    of.handle({"msg_type": "car_config"})
    put(of, 0.24)
    said = drive(of, 4.0, along)
    assert [each for each in said if each["msg_type"] == "missed_checkpoint"] == [
        {"msg_type": "missed_checkpoint", "checkpoint": 0}
    ]


def test_each_scene_has_a_race_of_its_own():
    of = session(rules=Rules(1, 60.0, 8))
    of.handle({"msg_type": "car_config"})
    of.handle({"msg_type": "exit_scene"})
    assert of.race is None
    assert of.handle({"msg_type": "car_config"}) == []
    of.handle({"msg_type": "load_scene", "scene_name": "warren"})
    assert of.race.in_lobby
    # A scene that is loaded in the middle of a race leads back to the lobby.
    of.handle({"msg_type": "car_config"})
    of.handle({"msg_type": "load_scene", "scene_name": "warren"})
    assert of.race.in_lobby


def test_leaving_a_scene_leads_back_to_the_menu():
    of = session()
    assert of.handle({"msg_type": "exit_scene"}) == of.greet()
    assert of.telemetry() is None
    assert of.advance(0.1) == []


def test_small_talk():
    of = session()
    assert of.handle({"msg_type": "get_protocol_version"}) == [
        {"msg_type": "protocol_version", "version": "2"}
    ]
    car = {"body_style": "f1", "body_r": "1", "body_g": "2", "body_b": "3", "car_name": "Ada",
           "font_size": "100"}
    assert of.handle({"msg_type": "car_config", **car}) == []
    assert of.handle({"msg_type": "lidar_config", "deg_per_sweep_inc": "2"}) == []
    assert of.refused == 0


def test_a_client_ends_the_simulator_only_where_it_may():
    for may_quit in (False, True):
        of = session(may_quit=may_quit)
        of.handle({"msg_type": "quit_app"})
        assert of.quit_asked == may_quit
        assert of.refused == (not may_quit)


@pytest.mark.parametrize(
    "message",
    [
        {"msg_type": "dance"}, {"msg_type": "control", "steering": "nan"},
        {"msg_type": "control", "throttle": "full"}, {"msg_type": "load_scene"},
        {"msg_type": "load_scene", "scene_name": "nowhere"}, {"msg_type": "cam_config", "fov": "x"},
        {"msg_type": "cam_config", "img_w": "99999"}, {"msg_type": "node_position", "index": "-1"},
        {"msg_type": "set_position", "pos_x": "1e6", "pos_z": "0"}, {"msg_type": "set_position"},
        {"msg_type": "step_mode", "step_mode": "synchronous", "time_step": "-1"},
        {"msg_type": "regen_road", "rand_seed": "-1"}, {"msg_type": "car_config", "body_r": "red"},
    ],
    ids=str,
)
def test_nonsense_is_counted_and_changes_nothing(message):
    of = session()
    before = of.telemetry()
    assert of.handle(message) == []
    assert of.refused == 1
    after = of.telemetry()
    assert {**before, "image": 0} == {**after, "image": 0}


@settings(max_examples=60)
@given(
    st.sampled_from(["control", "cam_config", "car_config", "set_position", "node_position",
                     "regen_road", "step_mode", "load_scene", "reset_car", "x"]),
    st.dictionaries(
        st.sampled_from(["steering", "throttle", "brake", "index", "pos_x", "pos_z", "rand_seed",
                         "turn_increment", "time_step", "step_mode", "fov", "scene_name", "Qw"]),
        st.one_of(st.none(), st.text(max_size=6), st.floats(), st.booleans(),
                  st.sampled_from(["synchronous", "1", "-1", "nan"])),
        max_size=4,
    ),
)
def test_no_message_breaks_a_session(kind, fields):
    for of in _SHARED:
        said = of.handle({**fields, "msg_type": kind}) + of.advance(1 / FPS)
        json.dumps([*said, of.telemetry()], allow_nan=False)


_SHARED = session(), session(rules=Rules(1, 1.0, 50))
