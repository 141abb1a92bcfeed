"""ONNX Runtime, in float32: about twice as fast as torch where networks are small."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from rtagent.errors import typed_line
from rtagent.inference.engines.interface import Answer, Convert, Engine, Observations, Unsupported
from rtagent.inference.engines.traceable import Traceable, translating
from rtagent.memory.array_buffer import Floats
from rtagent.memory.engine_models import Bytes, Precision

OBSERVATION = "observation"
ERRORS_ONLY = 3


class OnnxRuntime(Engine):
    """ONNX Runtime."""

    def __init__(self) -> None:
        import onnxruntime

        self._onnxruntime = onnxruntime

    def precisions(self) -> tuple[Precision, ...]:
        """float32 only."""
        return ("float32",)

    def translate(self, network: Traceable) -> Convert:
        import onnx

        weights = network.weights()
        names = [f"weight_{index}" for index in range(len(weights))]
        try:
            with translating(), _unlogged(), tempfile.TemporaryDirectory() as folder:
                path = Path(folder) / "policy.onnx"
                # The exporter that traces takes half a second, the other one 18.
                torch.onnx.export(
                    network, (network.example, *weights), path,
                    input_names=[OBSERVATION, *names], dynamo=False,
                )
                model = onnx.load(path)
        except MemoryError:
            raise
        except Exception as error:
            raise Unsupported(typed_line(error)) from error
        if [each.name for each in model.graph.input] != [OBSERVATION, *names]:
            raise Unsupported("some weights have no part in the answer")
        return partial(_filled, model, network)

    def open(self, model: Bytes, precision: Precision) -> Answer:
        options = self._onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        options.log_severity_level = ERRORS_ONLY
        session = self._onnxruntime.InferenceSession(
            model.tobytes(), options, providers=["CPUExecutionProvider"]
        )

        def answer(observation: npt.NDArray[Any]) -> npt.NDArray[np.float32]:
            answers = session.run(None, {OBSERVATION: observation[None]})[0]
            return np.asarray(answers[0], np.float32)

        return answer


def _filled(
    template: Any, network: Traceable, values: Floats, precision: Precision,
    observations: Observations,
) -> Bytes:
    """A model with the weights as constants in place of inputs, see `Convert`."""
    import onnx

    model = onnx.ModelProto()
    model.CopyFrom(template)
    names = [each.name for each in model.graph.input][1:]
    del model.graph.input[1:]
    model.graph.initializer.extend(
        onnx.numpy_helper.from_array(tensor, name)
        for name, tensor in zip(names, network.split(values), strict=True)
    )
    return np.frombuffer(model.SerializeToString(), np.uint8)


@contextmanager
def _unlogged() -> Iterator[None]:
    """Without the exporter's log, into which it writes the whole graph when it fails."""
    name = "_jit_onnx_log"
    # The log has a switch, but the exporter itself turns it on.
    write = getattr(torch._C, name, None)
    setattr(torch._C, name, lambda *parts: None)
    try:
        yield
    finally:
        setattr(torch._C, name, write)
