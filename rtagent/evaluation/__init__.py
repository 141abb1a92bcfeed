"""Policies and environments without the wall clock: greedy episodes, shapes, export.

May import `env`, `policy`, `storage`, `processes`.
"""
