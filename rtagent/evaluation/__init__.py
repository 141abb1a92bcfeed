"""Policies and environments without the wall clock: greedy episodes, shapes, export.

May import everything that lies below.
"""
