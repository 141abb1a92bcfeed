"""An engine that is missing is refused in one line that says what to do."""

from __future__ import annotations

from dataclasses import replace

import pytest

from rtagent.config import Config, PolicyConfig
from rtagent.errors import UserError
from rtagent.inference.engines import registry
from rtagent.inference.engines.registry import (
    Candidate,
    candidates,
    check,
    loaded,
    wanted_engines,
)


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither engine is installed."""
    for name, entry in registry.REGISTER.items():
        monkeypatch.setitem(registry.REGISTER, name, replace(entry, packages=("not_there",)))


def test_torch_needs_nothing(bare: None) -> None:
    check(PolicyConfig())
    assert wanted_engines(PolicyConfig()) == []


@pytest.mark.parametrize(
    ("engine", "said"),
    [
        ("openvino", r"needs OpenVINO: pip install 'rtagent\[openvino\]'$"),
        ("onnxruntime", r"needs ONNX Runtime: pip install 'rtagent\[onnx\]'$"),
        ("auto", r"finds no engine beside torch: pip install 'rtagent\[openvino\]'"),
    ],
)
def test_an_engine_that_is_not_installed(bare: None, engine: str, said: str) -> None:
    with pytest.raises(UserError, match=f"^policy.engine = '{engine}' {said}"):
        check(PolicyConfig(engine=engine))


def test_a_precision_that_the_processor_has_not(monkeypatch: pytest.MonkeyPatch) -> None:
    class Old:
        def precisions(self) -> tuple[str, ...]:
            return ("int8", "float32")

    monkeypatch.setattr(registry, "make", lambda name: Old())
    with pytest.raises(UserError, match=r"policy\.engine = 'openvino' cannot compute in it"):
        check(PolicyConfig(engine="openvino", precision="bfloat16"))
    engines = {"openvino": Old()}
    found = list(candidates(PolicyConfig(engine="openvino"), engines))  # type: ignore[arg-type]
    assert found == [Candidate("openvino", "int8"), Candidate("openvino", "float32")]


def test_an_engine_that_cannot_be_loaded_leaves_the_others(
    monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every inference process died of it, again and again, and nobody acted."""
    class Whole:
        def precisions(self) -> tuple[str, ...]:
            return ("int8", "float32")

    def make(name: str) -> Whole:
        if name in broken:
            raise ImportError("lib.so.1: cannot open shared object file")
        return Whole()

    monkeypatch.setattr(registry, "make", make)
    for name, entry in registry.REGISTER.items():
        monkeypatch.setitem(registry.REGISTER, name, replace(entry, packages=("json",)))
    broken = ["onnxruntime"]
    refused: list[tuple[str, str]] = []
    found = loaded(PolicyConfig(engine="auto"), lambda *said: refused.append(said))
    assert list(found) == ["openvino"]
    assert refused == [("onnxruntime", "ImportError: lib.so.1: cannot open shared object file")]
    check(PolicyConfig(engine="auto", precision="int8"))
    broken.append("openvino")
    with pytest.raises(UserError, match=r"\(openvino: ImportError: lib\.so\.1: .*use auto or fl"):
        check(PolicyConfig(engine="openvino", precision="int8"))


@pytest.mark.parametrize(
    ("policy", "said"),
    [
        ({"precision": "int8"}, "needs an engine: policy.engine = openvino"),
        ({"engine": "openvino", "device": "cuda"}, "runs on the CPU"),
        ({"engine": "onnxruntime", "precision": "bfloat16"}, "ONNX Runtime has only float32"),
        ({"engine": "onnxruntime", "precision": "int8"}, "ONNX Runtime has only float32"),
    ],
)
def test_settings_that_do_not_fit_together(policy: dict[str, str], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        Config(policy=PolicyConfig(**policy))  # type: ignore[arg-type]
