"""`rtagent rom search`, on a game whose variables are known."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from rtagent.env.gameboy.game import Game
from tests.cartridges import REWARDS, ROM
from tests.cli.conftest import Refused, Run


@pytest.fixture(scope="module")
def states(tmp_path_factory: pytest.TempPathFactory) -> dict[int, Path]:
    """Saved states of Starfall by their score."""
    folder = tmp_path_factory.mktemp("search")
    rewards = folder / "game.toml"
    rewards.write_text(REWARDS)
    script = folder / "begin.keys"
    script.write_text("120\n2 START\n30\n")
    game = Game(ROM, rewards, script, actions=("NOOP", "LEFT", "RIGHT"))
    saved: dict[int, Path] = {}
    try:
        _, info = game.reset(seed=0)
        steering = np.random.default_rng(0).integers(0, 3, 1000)
        for tick in range(20_000):
            if info["score"] not in saved:
                path = saved[info["score"]] = folder / f"{info['score']}.state"
                game.save_state(path)
            if len(saved) == 3:
                break
            _, _, over, _, info = game.step(int(steering[tick // 20]))
            if over:
                _, info = game.reset()
    finally:
        game.close()
    assert len(saved) == 3
    return saved


def test_the_score_is_found(run: Run, states: dict[int, Path]) -> None:
    low, middle, high = sorted(states)
    looks = [f"{states[low]}={low}", "increased", str(states[middle]), f"{states[high]}={high}"]
    found = run("rom", "search", str(ROM), *looks, "--json", "--most", "1000").document()
    assert found["found"] == len(found["places"])
    wanted = {"address": "0xc002", "type": "u2le", "values": [low, middle, high]}
    assert wanted in found["places"]
    code, out, _ = run("rom", "search", str(ROM), *looks, "--type", "u2le", "--most", "1")
    assert code == 0
    assert 'type = "u2le" }' in out


def test_a_cartridge_is_found_where_it_was_imported(
    run: Run, states: dict[int, Path], tmp_path: Path
) -> None:
    there = ("--state-dir", str(tmp_path))
    assert run("rom", "import", str(ROM), "--as", "own", *there).code == 0
    low, middle, _ = sorted(states)
    looks = [f"{states[low]}={low}", f"{states[middle]}={middle}"]
    assert run("rom", "search", "own", *looks, *there).code == 0


def test_where_nothing_agrees_it_says_so(run: Run, states: dict[int, Path]) -> None:
    one = states[min(states)]
    code, out, _ = run("rom", "search", str(ROM), str(one), "changed", str(one))
    assert code == 0
    assert "no place agrees" in out


def test_what_is_no_state_is_one_line(refused: Refused, tmp_path: Path) -> None:
    file = tmp_path / "a.state"
    file.write_bytes(b"no state")
    said = refused("rom", "search", str(ROM), f"{file}=1")
    assert "no state of this cartridge on gambatte" in said
