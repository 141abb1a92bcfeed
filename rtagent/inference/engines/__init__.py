"""Engines that answer with published weights faster than torch: OpenVINO and ONNX Runtime.

A converter process makes models of the weights, one for all inference processes. May import
policy, telemetry and what lies below them. Only an engine's own module imports its package, and
only inside functions.
"""
