"""What the faults of a cluster are held against; the run itself takes minutes, and real Ray."""

from __future__ import annotations

import gc
import tempfile
from pathlib import Path

import pytest

from benchmarks.cluster.cluster_faults import LINKS, Phase, Sharing, check_words, verdict
from benchmarks.cluster.ray_cluster import LearnerNode
from rtagent.errors import UserError

WELL = Phase("none", 0.001, 0.002, None, (), 0.3, 2, 0, 0, 0)
EVEN = Sharing(3.1, 2.2, 4_000, 4_000, 4_000)


def test_all_is_well() -> None:
    assert [holds for _, holds in verdict([WELL], EVEN)] == [True] * 7


@pytest.mark.parametrize(
    ("phase", "sharing", "missed"),
    [
        (WELL._replace(inaction=0.02), EVEN, "acting notices nothing"),
        (WELL._replace(doubled=32), EVEN, "nothing is learned twice"),
        (WELL._replace(applied_twice=32), EVEN, "no priority is applied twice"),
        (WELL._replace(in_flight=65), EVEN, "the backlog is bounded"),
        (WELL._replace(said=("cut: no answer",)), EVEN, "a line says what is cut, and since when"),
        (WELL._replace(said=("cut for 3 s: ",)), EVEN, "a line says what is cut, and since when"),
        (WELL, EVEN._replace(after_kill_s=5.5), "shares follow within 5 s"),
        (WELL, EVEN._replace(after_start_s=5.5), "shares follow within 5 s"),
        (WELL, EVEN._replace(learned=3_968), "no batch is lost or doubled"),
        (WELL, EVEN._replace(answered=4_032), "no batch is lost or doubled"),
    ],
)
def test_what_is_missed_is_named(phase: Phase, sharing: Sharing, missed: str) -> None:
    assert [claim for claim, holds in verdict([WELL, phase], sharing) if not holds] == [missed]


def test_a_word_that_is_in_no_name_is_refused() -> None:
    """No phase was run, and every claim about the phases held."""
    check_words((), [])
    check_words(("delay", "lost"), list(LINKS))
    with pytest.raises(UserError, match=r"--only lerner: in no phase; they are: 200 ms of delay; "):
        check_words(("delay", "lerner"), list(LINKS))


def test_what_a_learner_printed_is_not_left_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    node = LearnerNode("127.0.0.1:1")
    assert list(tmp_path.iterdir())
    del node
    gc.collect()
    assert not list(tmp_path.iterdir())
