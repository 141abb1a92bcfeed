"""What every figure of `GET /v1/stats` is: its place, type, unit, meaning, kind and names.

Dataclasses and no computation. It imports nothing of rtagent.
"""
