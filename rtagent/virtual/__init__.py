"""Whole runs in virtual time: environment, staggering, delays and learning without the waiting.

The parts are those of a live run, on a virtual clock. May import everything that lies below.
"""

from rtagent.virtual.result import VirtualRun
from rtagent.virtual.simulation import run

__all__ = ["VirtualRun", "run"]
