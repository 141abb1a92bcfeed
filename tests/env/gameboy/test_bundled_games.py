"""The common behaviour of both games that come with rtagent."""

import dataclasses
from contextlib import closing

import numpy as np
import pytest

from rtagent.env.gameboy import environment
from rtagent.env.gameboy.duel import Duel
from rtagent.env.gameboy.gambatte_machine import GameBoy
from rtagent.env.gameboy.rom import Rom
from rtagent.env.gameboy.starfall import Starfall
from rtagent.errors import UserError

both_games = pytest.mark.parametrize("game", [Duel, Starfall])


@both_games
def test_the_same_seed_gives_the_same_play_and_another_another(game):
    def frames(env, seed):
        rng = np.random.default_rng(5)
        seen = [env.reset(seed=seed)[0]]
        seen += [env.step(int(rng.integers(env.action_space.n)))[0] for _ in range(250)]
        return np.stack(seen)

    with closing(game(render_mode="rgb_array")) as env:
        np.testing.assert_array_equal(frames(env, 11), frames(env, 11))
        assert len({frames(env, seed).tobytes() for seed in range(4)}) > 1
        assert env.render().shape == (144, 160, 3)
        assert env.get_action_meanings()[env.noop_action] == "NOOP"


@pytest.mark.parametrize(
    ("game", "name", "value"),
    [
        *((Duel, "encounter", wrong) for wrong in (0, 65, "1", True)), (Duel, "opponents", "all"),
        *((Starfall, "starts", wrong) for wrong in (0, 2.5, "8")),
        *((game, "max_ticks", -1) for game in (Duel, Starfall)),
        *((game, "render_mode", "human") for game in (Duel, Starfall)),
    ],
)
def test_illegal_arguments_are_named(game, name, value):
    with pytest.raises(UserError, match=f"{name} = "):
        game(**{name: value})


@both_games
def test_a_cartridge_that_does_not_boot_is_one_clear_line_and_makes_room(game, monkeypatch, rom):
    image = rom.read()
    monkeypatch.setattr(Rom, "read", lambda self: image[:0x150] + bytes(len(image) - 0x150))
    with pytest.raises(UserError, match="expected 0x5a at 0xc000 within 120 frames"):
        game()
    GameBoy(rom.path.read_bytes()).close()


def test_a_game_that_does_not_start_is_one_clear_line(monkeypatch, rom):
    deaf = dataclasses.replace(rom, addresses={**rom.addresses, "screen": 0xC0FF})
    monkeypatch.setattr(environment, "read_manifest", lambda folder: deaf)
    with pytest.raises(UserError, match="expected 0x1 at 0xc0ff within 120 frames"):
        Starfall()
    GameBoy(rom.path.read_bytes()).close()
