"""Settings that do not go with a recurrent network."""

from __future__ import annotations

import pytest

from rtagent.config.recurrent import check_recurrent
from rtagent.config_sources import load_config
from rtagent.errors import UserError

LEARNING = (
    "learning.prioritized=true", "learning.demonstrations=here.demo", "learning.placement=auto",
    "learning.transitions=executed", "r3.mode=step",
)
R3 = ("r3.deadline_s=1", "r3.data_budget=100")


@pytest.mark.parametrize("setting", [
    *LEARNING, "learning.where=cluster", "policy.engine=openvino",
])
@pytest.mark.parametrize(("more", "network"), [
    ((), "policy.network = 'lstm'"), (("policy.factory=a:b",), "policy.factory = 'a:b'"),
])
def test_what_does_not_fit_is_refused(setting: str, more: tuple[str, ...], network: str) -> None:
    said = f"^{setting.partition('=')[0]} = .* does not fit {network}, which carries a state"
    with pytest.raises(UserError, match=said):
        check_recurrent(load_config(None, [setting, *R3, *more], {}))


def test_what_is_for_learning_fits_where_nothing_is_learned() -> None:
    check_recurrent(load_config(None, [*LEARNING, *R3, "learning.processes=0"], {}))


def test_sequences_that_the_replay_could_never_hold_are_refused() -> None:
    longest = ["replay.capacity=1000", "learning.learning_starts=100", "learning.sequence=476"]
    check_recurrent(load_config(None, longest, {}))
    longer = [*longest, "learning.burn_in=17"]
    with pytest.raises(UserError, match=r"n_step = 501 is more than half of replay.capacity"):
        check_recurrent(load_config(None, longer, {}))
    check_recurrent(load_config(None, [*longer, "learning.processes=0"], {}))
