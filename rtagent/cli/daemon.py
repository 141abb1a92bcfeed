"""The running daemon, as `status` and `set` find it: by the notes in its state directory."""

from __future__ import annotations

import argparse
import json
import os
from pathlib import Path
from typing import Any

import httpx

from rtagent.config import load_config
from rtagent.errors import UserError

TIMEOUT_S = 40.0
"""Longer than the supervisor gives a change to come into force."""
_TOKEN_VARIABLE = "RTAGENT_TOKEN"


def add_state_dir_option(parser: argparse.ArgumentParser) -> None:
    """`--state-dir DIR`."""
    parser.add_argument(
        "--state-dir", metavar="DIR", type=Path, help="the daemon's; none: the configured one"
    )


class Daemon:
    """HTTP calls to a running daemon.

    Args:
        url: its address.
        token: its bearer token.
        transport: for tests.
    """

    def __init__(
        self, url: str, token: str, transport: httpx.BaseTransport | None = None
    ) -> None:
        self.url = url
        self._client = httpx.Client(
            base_url=url,
            headers={"authorization": f"Bearer {token}"},
            timeout=TIMEOUT_S,
            transport=transport,
            trust_env=False,
        )

    def get(self, path: str) -> dict[str, Any]:
        """The JSON document at a path.

        Raises:
            UserError: no answer, or a refusal.
        """
        return self._call("GET", path)

    def patch(self, path: str, change: dict[str, Any]) -> dict[str, Any]:
        """Apply a merge patch; returns what is in force then.

        Raises:
            UserError: no answer, or a refusal.
        """
        return self._call("PATCH", path, json=change)

    def _call(self, method: str, path: str, **arguments: Any) -> dict[str, Any]:
        try:
            response = self._client.request(method, path, **arguments)
        except httpx.ConnectError:
            raise UserError(f"no daemon answers at {self.url}; start one: rtagent serve") from None
        except httpx.TimeoutException:
            raise UserError(f"the daemon at {self.url} gave no answer in {TIMEOUT_S:g} s") from None
        except httpx.HTTPError as error:
            raise UserError(f"the daemon at {self.url} hung up: {error}") from None
        try:
            document = response.json()
        except ValueError:
            document = None
        if response.is_success and isinstance(document, dict):
            return document
        raise UserError(_refusal(response, document))


def find_daemon(state_dir: Path | None) -> Daemon:
    """The daemon that runs on a state directory.

    Args:
        state_dir: none: the configured one.

    Raises:
        UserError: there is none, or its token cannot be read.
    """
    folder = (state_dir or load_config().state_dir).expanduser()
    note = _note(folder)
    return Daemon(str(note["url"]), _token(folder))


def _note(folder: Path) -> dict[str, Any]:
    """What `rtagent serve` wrote about itself, if that daemon is still there."""
    path = folder / "daemon.json"
    none_runs = f"no daemon runs on the state directory {folder}; start one: rtagent serve"
    try:
        note = json.loads(path.read_text(encoding="utf-8"))
        alive = Path(f"/proc/{int(note['pid'])}").exists() or not Path("/proc/self").exists()
        str(note["url"])
    except FileNotFoundError:
        raise UserError(none_runs) from None
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}") from None
    except (KeyError, TypeError, ValueError):
        raise UserError(f"{path} is damaged; remove it and start the daemon again") from None
    if not alive:
        raise UserError(f"{none_runs} (the last one, pid {note['pid']}, is gone)")
    return dict(note)


def _token(folder: Path) -> str:
    given = os.environ.get(_TOKEN_VARIABLE, "")
    path = folder / "token"
    try:
        return given or path.read_text(encoding="ascii").strip()
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is damaged"
        raise UserError(
            f"cannot read the token in {path}: {reason}; set {_TOKEN_VARIABLE} instead"
        ) from None


def _refusal(response: httpx.Response, document: Any) -> str:
    if isinstance(document, dict) and document.get("detail"):
        return str(document["detail"])
    return f"the daemon answered {response.status_code} {response.reason_phrase}".rstrip()
