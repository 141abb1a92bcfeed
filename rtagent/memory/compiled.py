"""The few functions that are written in C: a learner spends most of its own time in them.

They are compiled when rtagent is installed (pyproject.toml, `ext-modules`). Where there was no C
compiler, each caller does the same in Python.
"""

from __future__ import annotations

import ctypes
import importlib.util
from collections.abc import Callable
from functools import cache

from rtagent.errors import UserError

Function = Callable[[int], int]
"""Takes the address of a structure that says what to do."""


def compiled(name: str) -> Function | None:
    """A function of the compiled library; None if there is no such library.

    The interpreter's lock is released while it runs.

    Raises:
        UserError: the library was compiled from other sources, which had no such function.
    """
    library = _library()
    if library is None:
        return None
    try:
        function = getattr(library, name)
    except AttributeError:
        raise UserError(
            f"{library._name} was compiled for another version of rtagent and has no {name}: "
            "install rtagent again, in a checkout with scripts/setup"
        ) from None
    function.argtypes, function.restype = (ctypes.c_void_p,), ctypes.c_int64
    found: Function = function
    return found


def compiled_fence() -> Callable[[], object] | None:
    """`rtagent_fence` of the compiled library; None if there is no such library.

    The interpreter's lock is kept: to release it would take longer than the fence.
    """
    library = _library()
    if library is None:
        return None
    function = ctypes.PyDLL(library._name, handle=library._handle).rtagent_fence
    function.argtypes, function.restype = (), None
    found: Callable[[], object] = function
    return found


@cache
def _library() -> ctypes.CDLL | None:
    # It lies where an extension module would, but is a plain library: it needs no Python headers.
    found = importlib.util.find_spec("rtagent._compiled")
    if found is None or found.origin is None:
        return None
    try:
        return ctypes.CDLL(found.origin)
    except OSError:
        return None
