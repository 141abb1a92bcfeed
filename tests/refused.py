"""Errors that a user sees."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from rtagent.errors import UserError


@contextmanager
def one_line(
    *patterns: str, error: type[Exception] = UserError
) -> Iterator[pytest.ExceptionInfo[Exception]]:
    """Inside, an error is raised whose text is one line, in which each pattern is found."""
    with pytest.raises(error) as caught:
        yield caught
    text = str(caught.value)
    assert "\n" not in text
    for pattern in patterns:
        assert re.search(pattern, text), f"{pattern!r} is not in: {text}"
