"""OpenVINO: float32, bfloat16 where the processor has it, and int8 with ranges that are measured.

In int8 each weight is rounded to one of 255 steps over the range of its output channel, and each
input of a layer to one of 256 steps over the range that the inputs had on recent frames; pixels are
whole numbers already. A processor without the instructions for int8 (VNNI) adds the products of two
bytes in 16 bits, where their sum can overflow; there each weight has half as many steps, so that it
cannot. The last layer is not rounded, for actions often differ by less than a step.
Everything else is computed in float32: between layers of int8 bfloat16 is no faster.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from rtagent.inference.engines.interface import Answer, Convert, Engine, Observations, Unsupported
from rtagent.inference.engines.traceable import Traceable, translating
from rtagent.memory.array_buffer import Floats
from rtagent.memory.engine_models import Bytes, Precision
from rtagent.policy.factory import line_of

DEVICE = "CPU"
ACTIVATION_LEVELS, WEIGHT_LEVELS = 256, 255
HALF = 0.5
"""Share of the steps of a weight that are used: 2 products of at most 255 * 64 fit into 16 bits."""
CALIBRATION_FRAMES = 16
LAYERS = ("Convolution", "MatMul")


class OpenVino(Engine):
    """OpenVINO."""

    def __init__(self) -> None:
        import openvino

        self._core = openvino.Core()
        self._bfloat16 = "BF16" in self._core.get_property(DEVICE, "OPTIMIZATION_CAPABILITIES")

    def precisions(self) -> tuple[Precision, ...]:
        """int8 and float32 always; bfloat16 if the processor has instructions for it."""
        return ("int8", "bfloat16", "float32") if self._bfloat16 else ("int8", "float32")

    def translate(self, network: Traceable) -> Convert:
        import openvino

        weights = network.weights()
        example = (network.example, *weights)
        try:
            with translating():
                traced = torch.jit.trace(  # type: ignore[no-untyped-call]
                    network, example, check_trace=False
                )
                model = openvino.convert_model(
                    traced, example_input=example, input=[tuple(each.shape) for each in example]
                )
        except MemoryError:
            raise
        except Exception as error:
            raise Unsupported(_reason(error)) from error
        if len(model.inputs) != len(example):
            raise Unsupported("some weights have no part in the answer")
        return partial(self._converted, model, network)

    def open(self, model: Bytes, precision: Precision) -> Answer:
        import openvino

        blob = openvino.Tensor(model, shared_memory=True)
        compiled = self._core.import_model(blob, DEVICE, self._settings(precision))
        request = compiled.create_infer_request()
        # Bound once: binding arrays in each call takes longer than a small network.
        entering, leaving = _array(compiled.input(0)), _array(compiled.output(0))
        request.set_input_tensor(openvino.Tensor(entering, shared_memory=True))
        request.set_output_tensor(openvino.Tensor(leaving, shared_memory=True))

        def answer(
            observation: npt.NDArray[Any], held: Bytes = model
        ) -> npt.NDArray[np.float32]:
            # `held`: the compiled model reads its weights out of these bytes.
            entering[0] = observation
            request.infer()
            return np.array(leaving[0], np.float32)

        return answer

    def _settings(self, precision: Precision) -> dict[str, Any]:
        """One thread; layers that are not marked as int8 in bfloat16, or in float32."""
        low = precision == "bfloat16"
        return {
            "PERFORMANCE_HINT": "LATENCY", "INFERENCE_NUM_THREADS": 1, "NUM_STREAMS": 1,
            "ENABLE_CPU_PINNING": False, "INFERENCE_PRECISION_HINT": "bf16" if low else "f32",
        }

    def _converted(
        self, template: Any, network: Traceable, values: Floats, precision: Precision,
        observations: Observations,
    ) -> Bytes:
        """A compiled model, see `Convert`."""
        model = _filled(template, network, values)
        if precision == "int8":
            for layer in inner_layers(model):
                if is_vector_product(layer):
                    replace_by_convolution(layer)
            layers = inner_layers(model)
            low, high = self._ranges(model, layers, observations[:CALIBRATION_FRAMES])
            share = HALF if sums_can_overflow() else 1.0
            for layer, least, most in zip(layers, low, high, strict=True):
                quantize(layer, least, most, share)
        compiled = self._compile(model, precision)
        return np.frombuffer(compiled.export_model().getvalue(), np.uint8).copy()

    def _ranges(
        self, model: Any, layers: list[Any], observations: Observations
    ) -> tuple[list[float], list[float]]:
        """Smallest and largest value that enters each layer on these observations."""
        import openvino

        inputs = [layer.input_value(0) for layer in layers]
        probe = openvino.Model(inputs, model.get_parameters(), "ranges")
        request = self._compile(probe, "float32")
        low, high = [0.0] * len(layers), [0.0] * len(layers)
        for observation in observations:
            entered = request([observation[None]])
            for index in range(len(layers)):
                low[index] = min(low[index], float(entered[index].min()))
                high[index] = max(high[index], float(entered[index].max()))
        return low, high

    def _compile(self, model: Any, precision: Precision) -> Any:
        """Compile a model whose int8 layers are marked."""
        return self._core.compile_model(model, DEVICE, self._settings(precision))


def _filled(template: Any, network: Traceable, values: Floats) -> Any:
    """A model with the weights as constants in place of inputs."""
    from openvino import opset13

    model = template.clone()
    inputs = model.get_parameters()[1:]
    for parameter, tensor in zip(inputs, network.split(values), strict=True):
        constant = opset13.constant(tensor)
        for target in parameter.output(0).get_target_inputs():
            target.replace_source_output(constant.output(0))
        model.remove_parameter(parameter)
    model.validate_nodes_and_infer_types()
    return model


def inner_layers(model: Any) -> list[Any]:
    """The layers with constant weights that are followed by other layers, in order."""
    layers = [each for each in model.get_ordered_ops() if _is_layer(each)]
    last = _last_layers(model)
    return [each for each in layers if each.get_friendly_name() not in last]


def sums_can_overflow(cpuinfo: Path = Path("/proc/cpuinfo")) -> bool:
    """Whether this is an x86 processor without instructions for int8 (VNNI)."""
    flags = [line for line in cpuinfo.read_text().splitlines() if line.startswith("flags")]
    return any("vnni" not in line for line in flags)


def is_vector_product(layer: Any) -> bool:
    """Whether a layer is the product of one vector, (1, inputs), and a constant matrix."""
    entering = layer.input_value(0).get_partial_shape()
    return (
        layer.get_type_name() == "MatMul" and entering.is_static
        and len(entering) == 2 and entering[0] == 1
    )


def replace_by_convolution(layer: Any) -> None:
    """Compute the product of a vector and a matrix as a convolution of a picture of one pixel.

    In int8 OpenVINO computes a convolution two to three times as fast as the same product.
    """
    from openvino import opset13

    matrix = layer.input_value(1).get_node().get_data()
    pixel = opset13.reshape(layer.input_value(0), np.array([1, -1, 1, 1]), special_zero=False)
    convolved = opset13.convolution(
        pixel, opset13.constant(matrix[:, :, None, None]),
        strides=[1, 1], pads_begin=[0, 0], pads_end=[0, 0], dilations=[1, 1],
    )
    vector = opset13.reshape(convolved, np.array([1, -1]), special_zero=False)
    for target in layer.output(0).get_target_inputs():
        target.replace_source_output(vector.output(0))


def quantize(layer: Any, low: float, high: float, share: float) -> None:
    """Round a layer's inputs and weights to steps.

    Args:
        layer: changed in place.
        low: the smallest input that is not cut off.
        high: the largest one.
        share: how much of the range of an int8 the weights take, at most 1.
    """
    from openvino import opset13

    if not _is_scaled_bytes(layer.input_value(0).get_node()):
        least, most = np.float32(low), np.float32(max(high, low + 1e-6))
        entering = opset13.fake_quantize(
            layer.input_value(0), least, most, least, most, ACTIVATION_LEVELS
        )
        layer.input(0).replace_source_output(entering.output(0))
    constant = layer.input_value(1).get_node()
    weights = constant.get_data()
    # The first axis is that of the outputs, in a MatMul with a transposed matrix, too.
    axes = tuple(range(1, weights.ndim))
    largest = np.maximum(np.abs(weights).max(axis=axes, keepdims=True), 1e-9)
    span = (largest / share).astype(np.float32)
    rounded = opset13.fake_quantize(constant.output(0), -span, span, -span, span, WEIGHT_LEVELS)
    layer.input(1).replace_source_output(rounded.output(0))


def _array(port: Any) -> npt.NDArray[Any]:
    """An array for an input or an output of a model."""
    return np.zeros(tuple(port.shape), port.element_type.to_dtype())


def _is_scaled_bytes(node: Any) -> bool:
    """Whether a node is a picture of bytes, multiplied by one number."""
    if node.get_type_name() == "Multiply":
        scale = node.input_value(1).get_node()
        if scale.get_type_name() != "Constant" or scale.get_data().size != 1:
            return False
        node = node.input_value(0).get_node()
    if node.get_type_name() != "Convert":
        return False
    picture = node.input_value(0)
    is_input: bool = picture.get_node().get_type_name() == "Parameter"
    return is_input and picture.get_element_type().to_dtype() == np.uint8


def _is_layer(node: Any) -> bool:
    if node.get_type_name() not in LAYERS:
        return False
    if node.input_value(1).get_node().get_type_name() != "Constant":
        return False
    return node.get_type_name() != "MatMul" or bool(node.get_attributes().get("transpose_b"))


def _last_layers(model: Any) -> set[str]:
    """Names of the layers that no other layer follows."""
    found, seen = set(), set()
    waiting = [result.input_value(0).get_node() for result in model.get_results()]
    while waiting:
        node = waiting.pop()
        name = node.get_friendly_name()
        if name in seen:
            continue
        seen.add(name)
        if _is_layer(node):
            found.add(name)
        else:
            waiting += [each.get_node() for each in node.input_values()]
    return found


def _reason(error: Exception) -> str:
    """The operator that is missing, or the error's last line."""
    for line in str(error).splitlines():
        if "No conversion rule found for operations" in line or "No translator found for" in line:
            return line.strip()
    return line_of(error)
