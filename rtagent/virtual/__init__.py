"""Whole runs in virtual time: environment, staggering, delays and learning without the waiting.

The parts are those of a live run; what takes time here is only what is said to. Imports what the
environment, inference and learning processes do.
"""

from rtagent.virtual.result import VirtualRun
from rtagent.virtual.simulation import run

__all__ = ["VirtualRun", "run"]
