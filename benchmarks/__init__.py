"""Measurements: commands that print figures, and experiments, each in the folder of its subject.

The modules of this folder serve several of the others.
"""
