"""Realtime reinforcement learning: large policies that act on every tick of a world that does not
wait, and learn while they act."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rtagent.config import Config
    from rtagent.config_sources import load_config
    from rtagent.errors import UserError
    from rtagent.runtime import Runtime

__version__ = "0.1.0"
__all__ = ["Config", "Runtime", "UserError", "__version__", "load_config"]

_MODULES = {
    "Config": "rtagent.config",
    "Runtime": "rtagent.runtime",
    "UserError": "rtagent.errors",
    "load_config": "rtagent.config_sources",
}


def __getattr__(name: str) -> Any:
    """Import a name when it is first used: the command line must answer Ctrl-C at once."""
    if name in _MODULES:
        return getattr(importlib.import_module(_MODULES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
