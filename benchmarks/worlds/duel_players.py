"""Scripted players of Duel, which show what its encounters ask of a policy.

Each player reads the machine's memory and returns the action of the next tick.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from rtagent.env.gameboy.duel import BAG, COMMANDS, MOVES, TEAM, Duel
from rtagent.env.gameboy.rom import BUNDLED, read_manifest

A, B, LEFT, UP, RIGHT, DOWN, NOOP = range(7)
FIGHT, ITEM, CHANGE = 0, 1, 2
POTION, BOOST, BALL = 0, 1, 2
TYPES = 6
HEAVY = 8
RESISTS, EVEN, SUFFERS = 0.5, 1.0, 2.0
WORTH_A_TURN = 0.7
"""Changing costs a turn: the other creature must be hurt that much less."""
PUBLIC_MEMORY = range(0xC000, 0xC040)
MENUS = {FIGHT: MOVES, ITEM: BAG, CHANGE: TEAM}
MENUS_OF_A_TURN = COMMANDS, MOVES, BAG, TEAM

Player = Callable[["View", int], int]
"""Takes the memory and the number of the tick; returns an action."""


@dataclass(frozen=True)
class Creature:
    """One member of the party, or the opponent."""

    species: int
    type: int
    hp: int
    hp_max: int


class View:
    """Duel's public memory.

    Args:
        read: gives the byte at an address.
    """

    _at = read_manifest(BUNDLED / "duel").addresses

    def __init__(self, read: Callable[[int], int]) -> None:
        self._read = read

    def __getitem__(self, name: str) -> int:
        return self._read(self._at[name])

    def creature(self, address: int) -> Creature:
        """The creature at an address."""
        return Creature(*(self._read(address + i) for i in range(4)))

    @property
    def opponent(self) -> Creature:
        """The creature that the party fights against."""
        return self.creature(self._at["opponent_species"])

    @property
    def party(self) -> list[Creature]:
        """The creature that fights, then the others."""
        first = self._at["own_species"]
        return [self.creature(first + 4 * place) for place in range(self["party_size"])]

    @property
    def own_moves(self) -> list[int]:
        """The four moves of the creature that fights: each its type, plus `HEAVY` if heavy."""
        return self._four("own_moves")

    @property
    def opponent_moves(self) -> list[int]:
        """The opponent's four moves."""
        return self._four("opponent_moves")

    def _four(self, name: str) -> list[int]:
        return [self._read(self._at[name] + slot) for slot in range(4)]


class DelayedView(View):
    """The memory as it was some ticks ago.

    Args:
        env: whose machine it is.
        delay: in ticks, at least 1.
    """

    def __init__(self, env: Duel, delay: int) -> None:
        self._ram = env._machine.ram
        self._past: deque[bytes] = deque(maxlen=delay)
        super().__init__(lambda address: self._past[0][address - PUBLIC_MEMORY[0]])

    def look(self) -> None:
        """Read the memory of the newest tick; to be called once per tick."""
        self._past.append(bytes(map(self._ram.u8, PUBLIC_MEMORY)))


def view_of(env: Duel) -> View:
    """The memory of an environment's machine."""
    return View(env._machine.ram.u8)


def effect(attacker: int, target: int) -> float:
    """How hard a move of one type hits a creature of another: the factor of its damage."""
    ahead = (target - attacker) % TYPES
    return SUFFERS if ahead in (1, 2) else RESISTS if ahead in (4, 5) else EVEN


def random_player(seed: int, hold: int = 1) -> Player:
    """A new action every `hold` ticks."""
    rng = np.random.default_rng(seed)
    action = NOOP

    def act(view: View, tick: int) -> int:
        nonlocal action
        if tick % hold == 0:
            action = int(rng.integers(7))
        return action

    return act


def masher(view: View, tick: int) -> int:
    """Presses A again and again."""
    return A if tick % 2 == 0 else NOOP


def competent(view: View, tick: int) -> int:
    """Uses types, potions, the boost and the balls."""
    if view["screen"] not in MENUS_OF_A_TURN:
        return B
    if tick % 2:
        return NOOP  # a key counts when it goes down
    return _enter(view, *_plan(view))


def fighter(view: View, tick: int) -> int:
    """Only fights; keeps a key down until its effect is seen, for views that are delayed."""
    if view["screen"] not in MENUS_OF_A_TURN:
        return B
    if view["fainted"]:
        next_alive = next(place for place, each in enumerate(view.party) if place and each.hp)
        return _enter(view, CHANGE, next_alive)
    return _enter(view, FIGHT, _best_blow(view))


def _enter(view: View, command: int, cell: int) -> int:
    """The key that leads to a command and then to a cell of its menu."""
    if view["screen"] == COMMANDS:
        return _towards(view["cursor"], command)
    return _towards(view["cursor"], cell) if view["screen"] == MENUS[command] else B


def _towards(cursor: int, cell: int) -> int:
    if cursor == cell:
        return A
    if (cursor ^ cell) & 1:
        return RIGHT if cell & 1 else LEFT
    return DOWN if cell & 2 else UP


def _plan(view: View) -> tuple[int, int]:
    """The plan for this turn: a command, and a cell of its menu."""
    party, opponent = view.party, view.opponent
    own = party[0]
    moves = view.opponent_moves
    danger = [sum(_blow(move, member.type) for move in moves) for member in party]
    fit = [place for place, member in enumerate(party) if member.hp > member.hp_max // 3]
    safest = min(fit, key=lambda place: (danger[place], -party[place].hp), default=0)
    if view["fainted"]:
        left = [place for place, member in enumerate(party) if member.hp and place]
        return CHANGE, min(left, key=lambda place: (danger[place], -party[place].hp))
    if view["ball_items"] and opponent.hp <= opponent.hp_max // 4:
        return ITEM, BALL
    if danger[safest] < WORTH_A_TURN * danger[0]:
        return CHANGE, safest
    if view["potion_items"] and own.hp <= own.hp_max // 3:
        return ITEM, POTION
    if view["boost_items"] and own.hp > own.hp_max // 2:
        return ITEM, BOOST
    return FIGHT, _best_blow(view)


def _best_blow(view: View) -> int:
    """The number of the move that hits the opponent hardest on average."""
    opponent = view.opponent.type
    return int(np.argmax([_blow(move, opponent) for move in view.own_moves]))


def _blow(move: int, target: int) -> float:
    """Average damage of a move to a type, relative to that of other moves."""
    return effect(move % HEAVY, target) * (9.0 if move & HEAVY else 8.0)


def play(env: Duel, player: Player, encounter: int, seed: int | None = None) -> tuple[float, int]:
    """Play one encounter from its saved state: the reward (0 if out of time), and its ticks."""
    env.reset(seed=seed, options={"encounter": encounter})
    view, tick = view_of(env), 0
    while True:
        _, reward, decided, truncated, _ = env.step(player(view, tick))
        tick += 1
        if decided or truncated:
            return reward, tick
