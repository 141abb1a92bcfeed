"""What a profile is kept under, and the clock that it is taken by."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from rtagent.config import Config
from rtagent.config_sources import load_config
from rtagent.evaluation.probe import probe
from rtagent.learning import profiling
from rtagent.learning.beginning import build_network
from rtagent.learning.profiling import (
    _time_with_waits,
    precisions_of,
    profile_key,
    usable_cores,
)
from rtagent.memory.blueprint import Blueprint


def configured(*overrides: str) -> Config:
    return load_config(None, ["env.id=CartPole-v1", *overrides], {})


def key_of(config: Config, blueprint: Blueprint, size: int = 4) -> str:
    return profile_key(config, blueprint, size, build_network(config, blueprint))


def test_the_key_follows_the_network_and_the_batch_size() -> None:
    config, wider = configured(), configured("policy.width=2")
    blueprint = probe(config)
    other = replace(blueprint, tensors=blueprint.tensors[:-1])
    keys = {key_of(config, blueprint), key_of(config, blueprint, 8), key_of(wider, blueprint),
            key_of(config, other)}
    assert len(keys) == 4
    assert key_of(config, blueprint) in keys


@pytest.mark.parametrize(("busy", "usable"), [(0.5, 1), (1.9, 1), (2.0, 2), (16.0, 16)])
def test_a_step_is_planned_for_whole_cores(
    monkeypatch: pytest.MonkeyPatch, busy: float, usable: int
) -> None:
    """In a container with `--cpus 1` it was planned for two."""
    monkeypatch.setattr(profiling, "most_busy_cores", lambda: busy)
    assert usable_cores() == usable


def test_the_key_follows_what_each_step_does_beside_the_passes() -> None:
    blueprint = probe(configured())
    settings = [(), *(
        (f"learning.{each}",)
        for each in ("target_tau=0.01", "publish_every=1", "demonstration_margin=0.5")
    )]
    assert len({key_of(configured(*each), blueprint) for each in settings}) == len(settings)


@pytest.mark.parametrize("edited", ["edited_factory", "edited_layers"])
def test_the_key_follows_the_code_of_a_factory_and_of_its_layers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, edited: str
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    for name in ("edited_factory", "edited_layers"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    (tmp_path / "edited_layers.py").write_text(
        "from torch import nn\nclass Last(nn.Linear): pass\n"
    )
    (tmp_path / "edited_factory.py").write_text(
        "from edited_layers import Last\nfrom torch.nn import Flatten, Sequential\n"
        "def build(*spaces): return Sequential(Flatten(), Last(4, 2))\n"
    )
    config = configured("policy.factory=edited_factory:build")
    blueprint = probe(config)
    before = key_of(config, blueprint)
    assert key_of(config, blueprint) == before
    with open(tmp_path / f"{edited}.py", "a") as file:
        file.write("# other arithmetic, with the same tensors\n")
    assert key_of(config, blueprint) != before


def test_precision_is_what_is_configured() -> None:
    learning = configured().learning
    fixed = learning.model_copy(update={"precision": "bfloat16"})
    assert precisions_of(fixed) == ("bfloat16",)
    assert precisions_of(learning)[0] == "float32"


def test_waits_for_the_other_thread_count_beside_the_processor_s_time() -> None:
    alone, waited = threading.Lock(), threading.Semaphore(0)

    def seconds(call: Callable[[], object]) -> float:
        before = _time_with_waits(1e6)
        call()
        return _time_with_waits(1e6) - before

    def take() -> None:
        with alone:
            pass

    def wait() -> float:
        other = threading.Timer(0.01, waited.release)
        other.start()
        found = seconds(waited.acquire)
        other.join()
        return found

    # The kernel has a thread wait for reasons of its own, too, and a thread that is held up comes
    # when there is nothing to wait for any more; neither happens each time.
    assert any(seconds(take) < 1.0 for _ in range(20))
    assert any(wait() >= 1.0 for _ in range(20))
