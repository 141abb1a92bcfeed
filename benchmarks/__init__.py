"""Measurements, each a command that prints its figure."""
