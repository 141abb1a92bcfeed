"""Shared memory: every field has one writer at a time, and no lock that a killed process can hold.

`World` maps all of it; the other modules each hold one structure.
"""
