"""A trained policy as a file for other programs: `torch.export`, or ONNX.

Either maps `observation`, (B, stack, ...) in the environment's own numbers, to `values`, (B,
actions) action values, or to the (B, n) action itself where it is continuous; B is free. What has
been written is read again and asked the same as the network, and only then has its name.
"""

from __future__ import annotations

import json
import logging
import tempfile
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, redirect_stdout
from io import BytesIO, StringIO
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from rtagent.errors import UserError, first_line, reason_of
from rtagent.policy.transformer import plain_attention

FORMATS = {".pt2": "torch.export", ".onnx": "ONNX"}
TOLERANCE = 1e-4
"""Largest difference, relative to the largest answer, that counts as a rounding."""


def export(module: nn.Module, observations: Any, path: Path, about: Mapping[str, str]) -> float:
    """Write a policy, read it again and compare.

    Args:
        module: from observations to values or actions, float32.
        observations: Box of a stacked observation.
        path: ends in .pt2 or .onnx, one of `FORMATS`.
        about: metadata of the file.

    Returns:
        Largest difference between the answers of the file and of the module, over random
        observations.

    Raises:
        UserError: a package is missing, the policy cannot be exported, or the file answers
            something else.
    """
    example = _observations(observations, 3)
    write, ask = (_write_torch, _ask_torch) if path.suffix == ".pt2" else (_write_onnx, _ask_onnx)
    try:
        with (
            plain_attention(), _quiet(),
            tempfile.TemporaryDirectory(prefix=".export-", dir=path.parent) as folder,
        ):
            draft = Path(folder, path.name)
            write(module, example, draft, about)
            # Of another batch size than the example.
            asked = _observations(observations, 5, seed=1)
            with torch.inference_mode():
                expected = module(asked)
            difference = _largest_difference(ask(draft, asked), expected)
            draft.replace(path)
    except UserError:
        raise
    except ImportError as error:
        raise UserError(
            f"{FORMATS[path.suffix]} needs the package {error.name}: pip install 'rtagent[onnx]'"
        ) from None
    except OSError as error:
        raise UserError(f"--out {path}: {reason_of(error)}") from None
    except Exception as error:
        raise UserError(
            f"the policy cannot be exported to {path.suffix}: {first_line(error)}"
        ) from error
    return difference


def _largest_difference(answer: Tensor, expected: Tensor) -> float:
    """The largest difference between two answers; an error if it is more than a rounding."""
    # A logit of -inf excludes an action, and has no difference from another one.
    difference = float((answer - expected).where(answer != expected, 0.0).abs().max())
    largest = float(expected.where(expected.isfinite(), 0.0).abs().max())
    if not difference <= TOLERANCE * max(1.0, largest):
        raise UserError(
            f"the exported policy answers something else, by up to {difference:.3g}; no file was "
            "written"
        )
    return difference


def _observations(space: Any, count: int, seed: int = 0) -> Tensor:
    rng = np.random.default_rng(seed)
    shape = (count, *space.shape)
    if space.dtype == np.uint8:
        return torch.from_numpy(rng.integers(0, 256, shape, np.uint8))
    return torch.from_numpy(rng.normal(size=shape).astype(np.float32))


def _write_torch(module: nn.Module, example: Tensor, path: Path, about: Mapping[str, str]) -> None:
    batch = torch.export.Dim("batch")
    program = torch.export.export(module, (example,), dynamic_shapes=({0: batch},))
    # Not into the file: where a disk is full, what writes it there ends this process.
    content = BytesIO()
    torch.export.save(program, content, extra_files={"rtagent.json": json.dumps(dict(about))})
    path.write_bytes(content.getbuffer())


def _ask_torch(path: Path, observations: Tensor) -> Tensor:
    answer: Tensor = torch.export.load(path).module()(observations)
    return answer


def _write_onnx(module: nn.Module, example: Tensor, path: Path, about: Mapping[str, str]) -> None:
    import onnx

    program = torch.onnx.export(
        module, (example,), input_names=["observation"], output_names=["values"],
        dynamic_shapes=({0: torch.export.Dim("batch")},), dynamo=True, verbose=False,
    )
    assert program is not None
    model = program.model_proto
    onnx.helper.set_model_props(model, dict(about))
    onnx.save(model, path)


def _ask_onnx(path: Path, observations: Tensor) -> Tensor:
    import onnxruntime

    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    (answer,) = session.run(["values"], {"observation": observations.numpy()})
    return torch.from_numpy(answer)


@contextmanager
def _quiet() -> Iterator[None]:
    """Silence the exporters, which print and warn of what only their developers need."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings(), redirect_stdout(StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)
