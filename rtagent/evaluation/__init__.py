"""A policy and a world outside the clock: greedy episodes, shapes, export.

May import `env`, `policy`, `storage`, `processes`.
"""
