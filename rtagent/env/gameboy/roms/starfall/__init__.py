"""Starfall: the built-in Game Boy game, its source and the tool that builds it."""
