"""The ids of rtagent's own environments in Gymnasium's registry."""

from __future__ import annotations

import gymnasium as gym

from rtagent.env.donkey import scenes

ENVIRONMENTS = {
    "rtagent/Starfall-v0": "rtagent.env.gameboy.starfall:Starfall",
    "rtagent/Duel-v0": "rtagent.env.gameboy.duel:Duel",
    "gameboy": "rtagent.env.gameboy.game:Game",
}

PAPER_GAMES = {
    "rtagent/PokemonRedBattle-v0": ("pokemon-red", "pokemon-red-blue-battle"),
    "rtagent/PokemonRedCatch-v0": ("pokemon-red", "pokemon-red-blue-catch"),
    "rtagent/PokemonBlueBattle-v0": ("pokemon-blue", "pokemon-red-blue-battle"),
    "rtagent/PokemonBlueCatch-v0": ("pokemon-blue", "pokemon-red-blue-catch"),
    "rtagent/PokemonYellowBattle-v0": ("pokemon-yellow", "pokemon-yellow-battle"),
    "rtagent/PokemonYellowCatch-v0": ("pokemon-yellow", "pokemon-yellow-catch"),
    "rtagent/Tetris-v0": ("tetris", "tetris"),
}
"""For each id the name of the cartridge and the name of its reward file."""


def register() -> None:
    """Make these ids known to `gymnasium.make`; a second call changes nothing."""
    for name, entry_point in ENVIRONMENTS.items():
        if name not in gym.registry:
            gym.register(name, entry_point=entry_point)
    for name, (rom, rewards) in PAPER_GAMES.items():
        if name not in gym.registry:
            kwargs = {"name": rom, "rewards": rewards}
            gym.register(
                name, entry_point="rtagent.env.gameboy.paper_games:PaperGame", kwargs=kwargs
            )
    scenes.register()
