"""What not every machine has: without it tests are skipped, but for CI, which has everything."""

from __future__ import annotations

import os

import pytest


def needs(there: object, what: str) -> pytest.MarkDecorator:
    """Marks tests that need something, which may be there."""
    return pytest.mark.skipif(not there and "CI" not in os.environ, reason=f"needs {what}")


def require(there: object, what: str) -> None:
    """Ends a test or a fixture unless what it needs is there."""
    if not there:
        assert "CI" not in os.environ, f"needs {what}"
        pytest.skip(f"needs {what}")
