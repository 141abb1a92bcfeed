"""Programs of `torch.export` and ONNX files, as finished policies.

They map an observation, (1, stack, ...) without scaling, to (1, outputs), or to (1, H, outputs) for
consecutive ticks. `rtagent export` writes such files.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import numpy.typing as npt
import torch

from rtagent.errors import UserError
from rtagent.policy.pretrained import Loaded

Answer = npt.NDArray[Any]


def load(observation_space: Any, action_space: Any, file: str, device: str) -> Loaded:
    """Load a file by its ending.

    Raises:
        UserError: it does not exist, has another ending, or needs something that is missing.
    """
    path = Path(file).expanduser()
    if path.suffix not in (".pt2", ".onnx"):
        raise UserError(
            "a file must end in .pt2 (torch.export) or .onnx; for anything else name what loads "
            "it: policy.factory"
        )
    if not path.is_file():
        raise UserError("no such file")
    if device != "cpu":
        raise UserError(
            f"an exported program runs on the CPU, and policy.device = {device!r}; use cpu"
        )
    return _torch_program(path) if path.suffix == ".pt2" else _onnx_program(path)


def _torch_program(path: Path) -> Loaded:
    module = _program(path).module()

    def ask(observation: Answer) -> Answer:
        with torch.inference_mode():
            answer: Answer = module(torch.from_numpy(observation)[None])[0].float().numpy()
        return answer

    return ask


def _program(path: Path) -> torch.export.ExportedProgram:
    """Load a program.

    If a file cannot be read, torch logs the reason with a traceback, and its own error only refers
    to that: so the reason is kept from the log, and raised.
    """
    log, reasons = logging.getLogger("torch.export"), list[BaseException | None]()

    def keep_reason(record: logging.LogRecord) -> bool:
        if record.exc_info:
            reasons.append(record.exc_info[1])
        return not record.exc_info

    log.addFilter(keep_reason)
    try:
        return torch.export.load(path)
    except Exception as error:
        raise (*reasons, error)[0] or error from None
    finally:
        log.removeFilter(keep_reason)


def _onnx_program(path: Path) -> Loaded:
    try:
        import onnxruntime
    except ImportError:
        raise UserError("needs the package onnxruntime: pip install 'rtagent[onnx]'") from None
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(
        path, sess_options=options, providers=["CPUExecutionProvider"]
    )
    inputs, outputs = session.get_inputs(), session.get_outputs()
    if len(inputs) != 1:
        names = ", ".join(each.name for each in inputs)
        raise UserError(f"needs {len(inputs)} inputs ({names}), and there is one observation")

    def ask(observation: Answer) -> Answer:
        answer: Answer = session.run([outputs[0].name], {inputs[0].name: observation[None]})[0][0]
        return answer

    return ask
