"""HTTP calls to the running daemon, which is found by the notes in its state directory."""

from __future__ import annotations

import argparse
import json
import os
import ssl
from pathlib import Path
from typing import Any, NoReturn

import httpx

from rtagent import __version__
from rtagent.config_sources import load_config
from rtagent.errors import UserError, reason_of
from rtagent.files.regular_file import open_regular
from rtagent.supervisor.state_dir import NOTE, check_trusted, is_held, read_private

TIMEOUT_S = 40.0
"""Longer than the supervisor gives a change to come into force."""
_TOKEN_VARIABLE = "RTAGENT_TOKEN"
_ADVICE = "whoever has put it there may mean ill; choose another --state-dir"


def add_state_dir_option(parser: argparse.ArgumentParser) -> None:
    """`--state-dir DIR`."""
    parser.add_argument(
        "--state-dir", metavar="DIR", type=Path,
        help="state directory of the daemon; default: the configured one",
    )


class Daemon:
    """HTTP calls to a running daemon. Each raises UserError if there is no answer, or a refusal.

    Args:
        url: its address.
        token: its bearer token.
        timeout_s: for each answer.
        certificate: PEM file with the daemon's certificate. If None, the daemon speaks no TLS.
    """

    def __init__(
        self, url: str, token: str, timeout_s: float = TIMEOUT_S, certificate: str | None = None
    ) -> None:
        self.url = url
        self._timeout_s = timeout_s
        self._client = httpx.Client(
            base_url=url, timeout=timeout_s, trust_env=False,
            headers={"authorization": f"Bearer {token}", "user-agent": f"rtagent/{__version__}"},
            verify=_trusting(certificate),
        )

    def get(self, path: str) -> dict[str, Any]:
        """The JSON document at a path."""
        return _document(self._request("GET", path))

    def get_if_known(self, path: str) -> dict[str, Any] | None:
        """The JSON document at a path; None if the daemon has none there."""
        response = self._request("GET", path)
        return None if response.status_code == httpx.codes.NOT_FOUND else _document(response)

    def get_bytes_if_known(self, path: str) -> bytes | None:
        """What is at a path; None if the daemon has nothing there."""
        response = self._request("GET", path)
        if response.status_code == httpx.codes.NOT_FOUND:
            return None
        if not response.is_success:
            _document(response)
        return response.content

    def post(self, path: str) -> dict[str, Any]:
        """Ask for an action; returns the answer."""
        return _document(self._request("POST", path))

    def delete(self, path: str) -> dict[str, Any]:
        """Ask for a removal; returns the answer."""
        return _document(self._request("DELETE", path))

    def patch(self, path: str, change: dict[str, Any]) -> dict[str, Any]:
        """Apply a merge patch; returns what is in force then."""
        return _document(self._request("PATCH", path, json=change))

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def _request(self, method: str, path: str, **arguments: Any) -> httpx.Response:
        try:
            return self._client.request(method, path, **arguments)
        except httpx.ConnectError as error:
            if "CERTIFICATE" in str(error):
                raise UserError(
                    f"who answers at {self.url} shows another certificate than the daemon's; "
                    "restart the daemon if it was renewed"
                ) from None
            raise UserError(f"no daemon answers at {self.url}; start one: rtagent serve") from None
        except httpx.TimeoutException:
            raise UserError(
                f"the daemon at {self.url} gave no answer in {self._timeout_s:g} s"
            ) from None
        except httpx.HTTPError as error:
            raise UserError(f"the daemon at {self.url} hung up: {error}") from None


def find_daemon(state_dir: Path | None, timeout_s: float = TIMEOUT_S) -> Daemon:
    """The daemon that runs on a state directory; if None, on the configured one.

    Raises:
        UserError: there is none, or its token cannot be read.
    """
    folder = state_dir or load_config().state_dir
    note = _note(folder)
    return Daemon(str(note["url"]), _token(folder), timeout_s, note.get("certificate"))


def _trusting(certificate: str | None) -> ssl.SSLContext:
    """Trusts the daemon's own certificate and no other, whatever name it is for; None: nobody."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    if certificate is None:
        # The daemon speaks no TLS. By itself httpx would read the certificates of all authorities.
        return context
    context.check_hostname = False
    # The chain need not end at an authority: it is this very certificate that counts.
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    try:
        open_regular(Path(certificate)).close()
        context.load_verify_locations(certificate)
    except (OSError, ValueError) as error:
        reason = reason_of(error)
        raise UserError(f"cannot read the daemon's certificate {certificate}: {reason}") from None
    return context


def _note(folder: Path) -> dict[str, Any]:
    """The note that `rtagent serve` wrote about itself, if that daemon still runs."""
    path = folder / NOTE
    none_runs = (
        f"no daemon runs on the state directory {folder}; start one with rtagent serve, or name "
        "the directory of one that runs with --state-dir"
    )
    try:
        # Another user could have written it.
        check_trusted(folder)
        note = json.loads(read_private(path, _ADVICE))
        process, alive = Path(f"/proc/{int(note['pid'])}"), is_held(folder)
        if httpx.URL(note["url"]).scheme not in ("http", "https"):
            raise ValueError
        if not isinstance(note.get("certificate", ""), str):
            raise TypeError
    except FileNotFoundError:
        if is_held(folder):
            raise UserError(
                f"the state directory {folder} is held by a run that cannot be asked: "
                f"`rtagent train`, a program's Runtime, or a daemon whose {NOTE} was moved or "
                "removed while it ran, and which has to be started again"
            ) from None
        raise UserError(none_runs) from None
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}") from None
    except (ArithmeticError, KeyError, RecursionError, TypeError, ValueError, httpx.InvalidURL):
        raise UserError(f"{path} is damaged; remove it and start the daemon again") from None
    if alive is None:
        # Without a lock the pid decides, although it may be that of another process by now.
        alive = process.exists() or not Path("/proc/self").exists()
    if not alive:
        raise UserError(f"{none_runs} (the last one, pid {note['pid']}, is gone, or the "
                        "directory was moved while it ran)")
    return dict(note)


def _token(folder: Path) -> str:
    given = os.environ.get(_TOKEN_VARIABLE, "")
    path = folder / "token"
    try:
        token = given or read_private(path, _ADVICE).decode("ascii").strip()
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is damaged"
        raise UserError(
            f"cannot read the token in {path}: {reason}; set {_TOKEN_VARIABLE} instead"
        ) from None
    # A header ends at its last letter, and can carry no space behind it.
    if not (token and token == token.strip() and token.isascii() and token.isprintable()):
        raise UserError(
            f"{_TOKEN_VARIABLE if given else path} holds no usable token: it has to be what it was "
            "when the daemon started"
        )
    return token


class _Document(dict[str, Any]):
    """The answer of `url`. The address in a daemon's note may be another server's by now."""

    url: httpx.URL

    def __missing__(self, name: str) -> NoReturn:
        raise _foreign(self.url, name)


def _foreign(url: httpx.URL, lacks: str) -> UserError:
    return UserError(
        f"the answer of {url} has no {lacks}: that is no daemon of rtagent {__version__}; restart "
        "the daemon"
    )


def _document(response: httpx.Response) -> dict[str, Any]:
    try:
        document = response.json()
    except (ValueError, RecursionError):
        document = None
    if response.is_success and isinstance(document, dict):
        found = _Document(document)
        found.url = response.url
        return found
    if response.status_code == httpx.codes.UNAUTHORIZED:
        raise UserError(
            f"the daemon refuses the token: {_TOKEN_VARIABLE} has to be what it was when the "
            "daemon started, or unset; a token file that was replaced counts after a restart"
        )
    if isinstance(document, dict) and document.get("detail"):
        raise UserError(str(document["detail"]))
    if response.is_success:
        raise _foreign(response.url, "JSON document")
    answer = f"the daemon answered {response.status_code} {response.reason_phrase}"
    raise UserError(answer.rstrip())
