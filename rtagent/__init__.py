"""Realtime reinforcement learning: large policies that act on every tick of a world that does not
wait, and learn while they act."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rtagent.config import Config
from rtagent.config_reading import load_config
from rtagent.errors import UserError

if TYPE_CHECKING:
    from rtagent.runtime import Runtime

__version__ = "0.1.0"
__all__ = ["Config", "Runtime", "UserError", "__version__", "load_config"]


def __getattr__(name: str) -> Any:
    """Import `Runtime` when it is first used: the configuration alone stays light."""
    if name == "Runtime":
        from rtagent.runtime import Runtime

        return Runtime
    raise AttributeError(name)
