"""Engines that answer with published weights faster than torch: OpenVINO and ONNX Runtime.

A converter process makes models of the weights, one for all inference processes. May import
policy, telemetry and what lies below them; each engine's package is imported by its own module
alone, and there inside its functions.
"""
