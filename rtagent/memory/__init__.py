"""Shared memory: every field has one writer at a time, and no lock that a killed process can hold.

`World` maps all of it. Nearly every structure is a use of one of three primitives, each with its
proof: `double_buffer`, `ring`, `robust_lock`. What they ask of a processor is in `ordering`.
"""
