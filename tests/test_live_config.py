"""What a change of live settings looks like."""

from __future__ import annotations

from typing import Any

import pytest

from rtagent import load_config
from rtagent.errors import UserError
from rtagent.live_config import as_changes, changed
from tests.refused import one_line


@pytest.mark.parametrize(("given", "reason"), [
    ({"inference": 5}, "inference = 5: expected settings by name, as in {'processes': 2}"),
    ({"inference": "ab"}, "inference = 'ab': expected settings by name"),
    ({"inference": [("processes", 2)]}, "inference = [('processes', 2)]: expected settings"),
    ({"inference": None}, "inference = None: expected settings by name"),
    ({"learning": {}, 5: {}}, "5: no section"),
    ({"inference": {"processes": 2, 7: 1}}, "inference.7: no setting"),
    (5, "5: expected settings by section, as in {'inference': {'processes': 2}}"),
    (["inference"], "['inference']: expected settings by section"),
])
def test_what_is_no_change_is_refused_in_one_line(given: Any, reason: str) -> None:
    with one_line() as caught:
        as_changes(given)
    assert str(caught.value).startswith(reason)


def test_a_change_is_a_copy_of_what_was_given() -> None:
    given = {"inference": {"processes": 2}}
    found = as_changes(given)
    given["inference"]["processes"] = 3
    assert found == {"inference": {"processes": 2}}
    assert changed(load_config(), found).inference.processes == 2


@pytest.mark.parametrize("section", ["policy", "run", "nothing"])
def test_a_section_without_live_settings_is_refused_even_if_nothing_in_it_changes(
    section: str,
) -> None:
    with pytest.raises(UserError, match=f"^{section}: nothing in it can be changed"):
        changed(load_config(), {section: {}})
    assert changed(load_config(), {"inference": {}}) == load_config()


@pytest.mark.parametrize(("changes", "reason"), [
    ({"inference": {"processs": 2}},
     "inference.processs: unknown key; did you mean inference.processes?"),
    ({"inferense": {"processes": 2}},
     "inferense.processes: unknown key; did you mean inference.processes?"),
    ({"inference": {"zzz": 2}},
     "inference.zzz: unknown key; `rtagent config schema` lists all keys"),
    ({"learning": {"gamma": 0.5}}, "learning.gamma: cannot be changed while running"),
])
def test_what_was_probably_meant_is_named(changes: dict[str, Any], reason: str) -> None:
    with pytest.raises(UserError) as caught:
        changed(load_config(), changes)
    assert str(caught.value) == reason
