"""The bearer token: made once, kept in the state directory, readable by its owner alone.

Only the daemon that holds the state directory makes one, and writes it whole (`atomic_write.py`).
"""

from __future__ import annotations

import os
import re
import secrets
from collections.abc import Mapping
from pathlib import Path

from rtagent.errors import UserError
from rtagent.files.atomic_write import atomic_write
from rtagent.supervisor.state_dir import read_private

TOKEN_BYTES = 32
ENVIRONMENT_NAME = "RTAGENT_TOKEN"
FILE_NAME = "token"
_SHAPE = re.compile(r"[A-Za-z0-9._~-]{43,256}")
"""At least 256 bits in base64, of characters that need no escaping in a URL or a header."""


def load_or_make_token(state_dir: Path, environ: Mapping[str, str]) -> str:
    """The token of this daemon, made if there is none yet.

    Args:
        state_dir: where the token file is; created if missing.
        environ: a token in `RTAGENT_TOKEN` takes precedence over the file.

    Returns:
        The token, 43 to 256 characters.

    Raises:
        UserError: the token is malformed or open to others, or its file cannot be read or written.
    """
    given = environ.get(ENVIRONMENT_NAME, "")
    if given:
        return _checked(given, ENVIRONMENT_NAME)
    path = state_dir / FILE_NAME
    try:
        # `exists` would overlook a symbolic link whose target is missing.
        if not os.path.lexists(path):
            _make(path)
        return _read(path)
    except OSError as error:
        raise UserError(
            f"cannot keep the token in {path}: {error.strerror}; make room, or choose another "
            "folder with --state-dir"
        ) from None


def _make(path: Path) -> None:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with atomic_write(path, f".{FILE_NAME}-") as write:
        write(f"{secrets.token_hex(TOKEN_BYTES)}\n".encode())


def _read(path: Path) -> str:
    content = read_private(path, "remove it, and a new token is made", secret=True)
    return _checked(content.decode("ascii", "replace").strip(), str(path))


def _checked(token: str, source: str) -> str:
    if not _SHAPE.fullmatch(token):
        remedy = "unset it" if source == ENVIRONMENT_NAME else "remove it, and a new one is made"
        raise UserError(
            f"{source} holds no usable token (43 to 256 characters of A-Z a-z 0-9 . _ ~ -): "
            f"{remedy}"
        )
    return token
