"""Reward files: every mistake is one line, and rewards are those of a slow transcription."""

from __future__ import annotations

import re
import tomllib
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rtagent.env.gameboy.rewards import Judge, Variable, ended_by, load_rules, parse_rules
from rtagent.errors import UserError
from tests.refused import one_line

BASE = 0xC000
SIZE = 24

GOOD = """
[variables]
score = { address = 0xC002, type = "u2le" }
lives = { address = 0xC004 }
hp = { address = 0xD16C, type = "u2be", count = 6, stride = 44 }

[reward]
points = { increase = "score", weight = 0.5 }
lost = { decrease = "lives", weight = -1, unless = ["points"] }

[done]
over = { equals = "lives", value = 0 }
"""


def rules_of(text: str):
    return parse_rules(tomllib.loads(text))


def judge(text: str, *memories: dict[int, int]) -> list[tuple[float, str]]:
    rules = rules_of(text)
    values = [rules.read(lambda address, memory=each: memory.get(address, 0)) for each in memories]
    judge = Judge(rules)
    judge.begin(values[0])
    return [judge.step(each) for each in values[1:]]


def test_a_good_file(tmp_path: Path) -> None:
    path = tmp_path / "rewards.toml"
    path.write_text(GOOD)
    rules = load_rules(path)
    assert rules.variables["hp"] == Variable(0xD16C, 2, False, True, 6, 44)
    assert rules.variables["hp"].last == 0xD16C + 5 * 44 + 1
    assert rules.reward["lost"].weight == -1.0
    for lives, end in ((3, ""), (0, "over")):
        values = {"score": (0,), "lives": (lives,), "hp": (0,) * 6}
        assert ended_by(rules, values, values) == end


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("address = 0xC002", "adress = 0xC002", "variables.score.adress: unknown key"),
        ("address = 0xC002, ", "", "variables.score.address is missing"),
        ("0xC002", "0x7FFF", "variables.score.address = 0x7fff: expected a whole number from 0x80"),
        ("0xC002", "0x10000", "variables.score.address = 0x10000"),
        ("0xC002", "0xFFFF", "its last byte would be at 0x10000"),
        ("0xC002", '"C002"', "variables.score.address = 'C002'"),
        ("u2le", "u2", "variables.score.type = 'u2': expected u1, u2le"),
        ("u2le", "u5le", "variables.score.type = 'u5le'"),
        ('"u2le"', "2", "variables.score.type = 2"),
        ("count = 6", "count = 0", "variables.hp.count = 0"),
        ("count = 6", "count = true", "variables.hp.count = True"),
        ("stride = 44", "stride = 20000", "variables.hp: its last byte"),
        ('increase = "score"', 'increase = "points"', "unknown variable; there are: score, lives"),
        ("increase =", "rise =", "reward.points.rise: unknown key"),
        ('increase = "score", ', "", "reward.points: expected exactly one of increase"),
        ("weight = 0.5", 'bits = "lives"', "reward.points: expected exactly one of"),
        ("weight = 0.5", 'weight = "0.5"', "reward.points.weight = '0.5'"),
        ("weight = 0.5", "weight = nan", "reward.points.weight = nan: expected a finite number"),
        ("weight = 0.5", f"weight = {10**400}", "reward.points.weight = 1000"),
        ("weight = 0.5", "value = 3", "reward.points: increase takes no value"),
        (', value = 0 }', " }", "done.over: equals needs value"),
        ("value = 0", "value = 256", "done.over.value = 256: expected a whole number"),
        ("value = 0", "value = 0, weight = 2", "done.over.weight: unknown key"),
        ('["points"]', '["score"]', "reward.lost.unless: 'score' is not in reward"),
        ('["points"]', '"points"', "reward.lost.unless = 'points': expected a list"),
        ("[done]", "[end]", "end: unknown key; expected variables, reward, done"),
        ("[variables]", "[variables", "rewards.toml: "),
        ("[variables]\n", "[variables]\nx = 3\n", "variables.x = 3"),
    ],
)
def test_a_bad_file_is_one_line(tmp_path: Path, old: str, new: str, reason: str) -> None:
    path = tmp_path / "rewards.toml"
    assert old in GOOD
    path.write_text(GOOD.replace(old, new, 1))
    with one_line(re.escape(reason), re.escape(str(path))):
        load_rules(path)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "reward: at least one term"),
        (b"\xff\xfe", "rewards.toml"),
        (b"x" * (2 << 20), "2097152 bytes, and 262144 are the most"),
        (b"x = " + b"[" * 100_000, "nested too deeply"),
        (b"reward = 3", "reward = 3: expected a table"),
    ],
)
def test_what_is_no_reward_file_is_one_line(tmp_path: Path, content: bytes, reason: str) -> None:
    path = tmp_path / "rewards.toml"
    path.write_bytes(content)
    with pytest.raises(UserError, match=reason):
        load_rules(path)
    with pytest.raises(UserError, match="cannot read the reward file"):
        load_rules(tmp_path / "none.toml")


def test_a_term_can_wait_for_what_did_not_happen() -> None:
    text = """
        [variables]
        battle = { address = 0xD057 }
        owned = { address = 0xD2F7, count = 2 }
        box = { address = 0xDA80 }
        [reward]
        caught = { bits = "owned", unless = ["boxed"] }
        boxed = { increase = "box", unless = ["caught"] }
        fled = { equals = "battle", value = 0, weight = -1, unless = ["caught", "boxed"] }
        [done]
        left = { equals = "battle", value = 0 }
    """
    fight, left = {0xD057: 1}, {0xD057: 0}
    owned, box = {0xD2F8: 4}, {0xDA80: 1}
    assert judge(text, fight, fight, left) == [(0.0, ""), (-1.0, "left")]
    assert judge(text, fight, fight | owned, fight | owned | box, left | owned | box) == [
        (1.0, ""), (0.0, ""), (0.0, "left")
    ]
    assert judge(text, fight, fight | box, left | box) == [(1.0, ""), (0.0, "left")]
    assert judge(text, fight, left | owned) == [(1.0, "left")]


# --- a slow transcription -------------------------------------------------------------------


@st.composite
def entries(draw):
    size = draw(st.integers(1, 4))
    kind = draw(st.sampled_from(["u", "bcd"]))
    order = draw(st.sampled_from(["le", "be"])) if size > 1 else ""
    count = draw(st.integers(1, 3))
    stride = draw(st.integers(1, 5))
    last = SIZE - (count - 1) * stride - size
    address = BASE + draw(st.integers(0, last))
    return {"address": address, "type": f"{kind}{size}{order}", "count": count, "stride": stride}


def slow_elements(entry, memory: bytes) -> list[int]:
    kind = entry["type"]
    size = int(kind.strip("ubcdle"))
    found = []
    for index in range(entry["count"]):
        at = entry["address"] - BASE + index * entry["stride"]
        raw = memory[at : at + size]
        if kind.startswith("u"):
            found.append(int.from_bytes(raw, "big" if kind.endswith("be") else "little"))
        else:
            digits = (raw if kind.endswith("be") else raw[::-1]).hex()
            found.append(
                sum(int(digit, 16) * 10**power for power, digit in enumerate(reversed(digits)))
            )
    return found


def slow_amount(expression: str, value: int, before: list[int], now: list[int]) -> int:
    total = 0
    for index in range(len(now)):
        old, new = before[index], now[index]
        if expression == "increase" and new > old:
            total += new - old
        if expression == "decrease" and new < old:
            total += old - new
        if expression == "bits":
            total += sum(new >> bit & 1 and not old >> bit & 1 for bit in range(32))
        if expression == "equals" and new == value and old != value:
            total += 1
        if expression == "differs" and new != value and old == value:
            total += 1
    return total


@st.composite
def terms(draw, known, names, weighted):
    expression = draw(st.sampled_from(["increase", "decrease", "bits", "equals", "differs"]))
    term = {expression: draw(st.sampled_from(known))}
    if expression in ("equals", "differs"):
        term["value"] = draw(st.integers(0, 3))
    if weighted:
        term["weight"] = draw(st.integers(-3, 3))
        term["unless"] = draw(st.lists(st.sampled_from(names), max_size=2))
    return term


@st.composite
def worlds(draw):
    known = ["a", "b", "c"]
    names = ["p", "q", "r"]
    variables = {name: draw(entries()) for name in known}
    reward = {name: draw(terms(known, names, True)) for name in names}
    done = {"end": draw(terms(known, names, False))}
    byte = st.sampled_from([0, 1, 2, 3, 9, 0x10, 0x99, 0xFF])
    memories = draw(st.lists(st.lists(byte, min_size=SIZE, max_size=SIZE), min_size=2, max_size=6))
    return {"variables": variables, "reward": reward, "done": done}, [*map(bytes, memories)]


@settings(max_examples=150)
@given(worlds())
def test_rewards_are_those_of_a_slow_transcription(world) -> None:
    tables, memories = world
    rules = parse_rules(tables)
    fast = Judge(rules)
    fast.begin(rules.read(lambda address: memories[0][address - BASE]))
    given_something: list[str] = []
    for earlier, memory in pairwise(memories):
        def at(name: str, content: bytes) -> list[int]:
            return slow_elements(tables["variables"][name], content)

        expected = 0.0
        for name, term in tables["reward"].items():
            if any(other in given_something for other in term["unless"]):
                continue
            expression = next(iter(term))
            variable = term[expression]
            amount = slow_amount(
                expression, term.get("value", 0), at(variable, earlier), at(variable, memory)
            )
            if amount > 0:
                given_something.append(name)
            expected += term["weight"] * amount
        end = tables["done"]["end"]
        expression = next(iter(end))
        now = at(end[expression], memory)
        if expression == "equals":
            over = set(now) == {end["value"]}
        elif expression == "differs":
            over = set(now) != {end["value"]}
        else:
            over = slow_amount(expression, 0, at(end[expression], earlier), now) > 0
        values = rules.read(lambda address, memory=memory: memory[address - BASE])
        assert fast.step(values) == (expected, "end" if over else "")
