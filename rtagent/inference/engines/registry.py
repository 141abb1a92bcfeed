"""Which engines there are, what they need, and which of them a configuration allows."""

from __future__ import annotations

import pkgutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.util import find_spec

from rtagent.config import PolicyConfig
from rtagent.errors import UserError, typed_line
from rtagent.inference.engines.interface import Engine
from rtagent.memory.engine_models import ENGINES, PRECISIONS, Precision


@dataclass(frozen=True)
class Entry:
    """An engine.

    Attributes:
        title: its name, as its makers write it.
        packages: names of the packages that it imports.
        extra: the extra of rtagent that installs them.
        path: `module:name` of its class.
    """

    title: str
    packages: tuple[str, ...]
    extra: str
    path: str

    @property
    def installed(self) -> bool:
        """Whether all of its packages can be imported."""
        return all(find_spec(package) is not None for package in self.packages)


REGISTER = {
    "openvino": Entry(
        "OpenVINO", ("openvino",), "openvino",
        "rtagent.inference.engines.openvino_engine:OpenVino",
    ),
    "onnxruntime": Entry(
        "ONNX Runtime", ("onnx", "onnxscript", "onnxruntime"), "onnx",
        "rtagent.inference.engines.onnx_engine:OnnxRuntime",
    ),
}


@dataclass(frozen=True)
class Candidate:
    """An engine in a precision."""

    engine: str
    precision: Precision

    @property
    def codes(self) -> tuple[int, int]:
        """Places in `ENGINES` and in `PRECISIONS`."""
        return ENGINES.index(self.engine), PRECISIONS.index(self.precision)


def make(name: str) -> Engine:
    """Load an engine; raises whatever its package raises if that cannot be loaded."""
    engine: Engine = pkgutil.resolve_name(REGISTER[name].path)()
    return engine


def loaded(policy: PolicyConfig, refused: Callable[[str, str], object]) -> dict[str, Engine]:
    """The configured engines, by name, without those that cannot be loaded.

    A package may be installed, and lack a library of the system.

    Args:
        policy: names them.
        refused: told the name of an engine that cannot be loaded, and why.
    """
    engines = {}
    for name in wanted_engines(policy):
        try:
            engines[name] = make(name)
        except MemoryError:
            raise
        except Exception as error:
            refused(name, typed_line(error))
    return engines


def check(policy: PolicyConfig) -> None:
    """Refuse an engine that is not installed, or a precision that it lacks.

    Raises:
        UserError: one line that says what to install, or to set.
    """
    wanted = policy.engine
    if wanted == "torch":
        return
    if wanted == "auto":
        if not any(each.installed for each in REGISTER.values()):
            raise UserError(
                "policy.engine = 'auto' finds no engine beside torch: "
                "pip install 'rtagent[openvino]', or set policy.engine = torch"
            )
    elif not (entry := REGISTER[wanted]).installed:
        raise UserError(
            f"policy.engine = {wanted!r} needs {entry.title}: "
            f"pip install 'rtagent[{entry.extra}]'"
        )
    # Every engine has float32, and loading an engine takes a while.
    if policy.precision in ("auto", "float32"):
        return
    reasons: list[str] = []
    engines = loaded(policy, lambda name, why: reasons.append(f" ({name}: {why})"))
    if not any(candidates(policy, engines)):
        raise UserError(
            f"policy.precision = {policy.precision!r}: policy.engine = {wanted!r} cannot "
            f"compute in it on this machine{''.join(reasons)}; use auto or float32"
        )


def candidates(policy: PolicyConfig, engines: dict[str, Engine]) -> Iterator[Candidate]:
    """The engines and precisions that the configuration allows."""
    for name, engine in engines.items():
        for precision in engine.precisions():
            if policy.precision in ("auto", precision):
                yield Candidate(name, precision)


def wanted_engines(policy: PolicyConfig) -> list[str]:
    """Names of the engines that are configured, and installed."""
    names = list(REGISTER) if policy.engine == "auto" else [policy.engine]
    return [name for name in names if name in REGISTER and REGISTER[name].installed]
