"""Duel: a Game Boy game of battles by menu, its source and the tool that builds it."""
