"""The times of the parts of a learning step on this machine, and the file that keeps them."""

from __future__ import annotations

import hashlib
import json
import math
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

from rtagent.errors import UserError
from rtagent.files.atomic_write import atomic_write

FORMAT = 2
FOLDER = "profiles"
_UNEXPECTED = (AttributeError, KeyError, RecursionError, TypeError, ValueError)
"""What is raised by reading a file that another program may have written."""
Key = tuple[str, str]
"""Layer and kind of a part."""
ON_THE_TAPE = "forward"
PASSES = ("successors", "target", "policy")
"""Passes that may run beside the forward pass of the values that are learned: that of the online
network over successors (Double DQN); that of the target; and that of an actor and of the critic
over its actions, including their backward pass."""
KINDS = (
    "takeover", ON_THE_TAPE, *PASSES, "loss", "inputs", "weights", "policy loss", "policy inputs",
    "policy weights", "gradient", "apply",
)
"""Kinds of parts. takeover: new weights are read; inputs and weights: gradients of a layer's inputs
and of its weights; gradient: the whole gradient is gathered and clipped; apply: it is applied."""


@dataclass(frozen=True)
class Part:
    """One part of a step.

    Attributes:
        layer: name of its layer in the network; empty if the part belongs to no layer.
        kind: one of `KINDS`.
        alone_us: median time by precision, while the other cores are idle.
        beside_us: the same while another core runs the network, too: they share the memory.
        after: numbers of the parts that it waits for, all smaller than its own.
        output_mb: MiB of its output.
    """

    layer: str
    kind: str
    alone_us: dict[str, float]
    beside_us: dict[str, float]
    after: tuple[int, ...] = ()
    output_mb: float = 0.0

    @property
    def name(self) -> str:
        """Its name where it is printed."""
        return f"{self.layer} {self.kind}".strip()

    @property
    def own_pass(self) -> str | None:
        """The pass that it belongs to, one of `PASSES`; None if it belongs to the step itself."""
        first = self.kind.split()[0]
        return first if first in PASSES else None

    def in_precision(self, precision: str) -> tuple[str, ...]:
        """Its precisions in a step of one precision: that one, or all of its own if it lacks it."""
        return (precision,) if precision in self.alone_us else tuple(self.alone_us)

    @property
    def forward(self) -> Key | None:
        """Layer and kind of the forward part, if this is a part of a backward pass, else None."""
        backward = self.kind.endswith(("inputs", "weights"))
        return (self.layer, self.own_pass or ON_THE_TAPE) if backward else None


@dataclass(frozen=True)
class Profile:
    """A step of one network and batch size, part by part, in the order in which one core runs it.

    Attributes:
        network: its description.
        algorithm: name of the algorithm.
        batch_size: transitions of a batch.
        cores: number of cores that may be used.
        parts: of the step.
        step_us: median time of the whole step by precision, while the other cores are idle.
        split_us: the same with each layer's backward pass in two calls, as `alone_us` is measured.
        noise: spread of the step's time, (p90 - p10) / median, the largest of all precisions.
        steps: number of steps measured in each precision.
        handover_us: time until another core starts with what it is given.
        cast_us_per_mb: time to cast a MiB of float32 to another precision, or back.
    """

    network: str
    algorithm: str
    batch_size: int
    cores: int
    parts: tuple[Part, ...]
    step_us: dict[str, float]
    split_us: dict[str, float]
    noise: float
    steps: int
    handover_us: float = 0.0
    cast_us_per_mb: float = 0.0

    def whole(self, *, split: bool) -> float:
        """Time of a whole step on one core over the sum of its parts, medians of both.

        A step is slow now in one part and now in another, so the median of the sum is more than the
        sum of the medians, from which plans are made. And where layers are small, most of a part's
        time is spent on running it by itself, which is not needed where torch runs the layers.

        Args:
            split: whether each layer's backward pass comes in two calls.
        """
        return median(
            step_us / sum(
                part.alone_us.get(each, min(part.alone_us.values())) for part in self.parts
            ) for each, step_us in (self.split_us if split else self.step_us).items()
        )

    @property
    def precisions(self) -> tuple[str, ...]:
        """The precisions that were measured."""
        return tuple(self.step_us)


class ProfileCache:
    """The profiles of a machine, in a file each."""

    def __init__(self, state_dir: Path) -> None:
        self._folder = state_dir.expanduser() / FOLDER

    def read(self, key: str) -> Profile | None:
        """The profile; None if there is none that can be read."""
        try:
            return from_json(json.loads((self._folder / f"{key}.json").read_text()))
        except (OSError, *_UNEXPECTED):
            return None

    def make(self) -> None:
        """Make the folder, before what it shall keep is measured.

        Raises:
            UserError: it cannot be made.
        """
        try:
            # The state directory: `parents` alone would let a group write there, if the umask does.
            self._folder.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._folder.mkdir(exist_ok=True)
        except OSError as error:
            raise _refused(self._folder, error) from None

    def write(self, key: str, profile: Profile) -> Path:
        """Keep a profile.

        Raises:
            UserError: it cannot be written.
        """
        path = self._folder / f"{key}.json"
        self.make()
        try:
            with atomic_write(path, ".profile-") as write:
                write(json.dumps(to_json(profile), indent=1).encode())
        except OSError as error:
            raise _refused(path, error) from None
        return path


def _refused(path: Path, error: OSError) -> UserError:
    return UserError(
        f"cannot keep the profile in {path}: {error.strerror}; choose another state directory with "
        "--set run.state_dir=DIR"
    )


def cache_key(*what: object) -> str:
    """A file name for what a profile depends on."""
    return hashlib.sha256(repr((FORMAT, *what)).encode()).hexdigest()[:32]


def to_json(profile: Profile) -> dict[str, Any]:
    """The profile as one JSON object."""
    return asdict(profile)


def from_json(document: dict[str, Any]) -> Profile:
    """The profile of which `to_json` made a document.

    Raises:
        AttributeError, KeyError, TypeError, ValueError: the document is no profile.
    """
    parts = tuple(Part(**part | {"after": tuple(part["after"])}) for part in document["parts"])
    known = set(document["step_us"])
    if not known or not parts or set(document["split_us"]) != known:
        raise ValueError("no step was measured")
    for number, part in enumerate(parts):
        ordered = all(0 <= each < number for each in part.after)
        measured = part.alone_us and part.alone_us.keys() == part.beside_us.keys() <= known
        named = part.kind in KINDS and isinstance(part.layer, str)
        times = (*part.alone_us.values(), *part.beside_us.values(), part.output_mb)
        if not (named and measured and ordered and all(map(_is_amount, times))):
            raise ValueError(f"no part of a step: {part}")
    profile = Profile(**document | {"parts": parts})
    whole = (*profile.step_us.values(), *profile.split_us.values(), profile.cores)
    others = (
        profile.handover_us, profile.cast_us_per_mb, profile.noise, profile.steps,
        profile.batch_size,
    )
    if not (all(map(_is_amount, (*whole, *others))) and all(whole)):
        raise ValueError("no step takes such a time")
    return profile


def _is_amount(value: object) -> bool:
    """Whether it is a number, finite, and at least 0."""
    return isinstance(value, int | float) and 0.0 <= value < math.inf


def processor_name(cpuinfo: Path = Path("/proc/cpuinfo")) -> str:
    """Name and features of the processor; for another one, profiles are measured anew."""
    try:
        lines = cpuinfo.read_text().splitlines()
    except OSError:
        return "unknown"
    wanted = ("model name", "flags", "CPU part", "Features")
    return "; ".join(sorted({line for line in lines if line.startswith(wanted)})) or "unknown"
