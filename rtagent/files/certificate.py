"""The certificate and the key of a server."""

from __future__ import annotations

import ssl
from pathlib import Path

from rtagent.errors import UserError
from rtagent.files.regular_file import open_regular


def tls_context(
    certificate: Path | None, private_key: Path | None,
    names: tuple[str, str] = ("service.certificate", "service.private_key"),
) -> ssl.SSLContext | None:
    """The context with which a server speaks TLS 1.2 and 1.3; None without a certificate.

    Args:
        certificate: PEM file.
        private_key: PEM file. If None, the key is in the certificate's file.
        names: of the two settings, for error messages.

    Raises:
        UserError: certificate or key cannot be used, or there is a key alone.
    """
    if certificate is None:
        if private_key is not None:
            raise UserError(f"{names[1]} needs {names[0]}")
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    # A client that reads and writes in two threads, as a remote policy does, may fail where a
    # ticket comes behind the handshake: Python lets both use OpenSSL's object at the same time.
    context.num_tickets = 0
    key = private_key or certificate
    for name, path in zip(names, (certificate, key), strict=True):
        try:
            open_regular(path).close()
        except OSError as error:
            raise UserError(f"{name}: cannot read {path}: {error.strerror}") from None
    try:
        # If it were given no password, OpenSSL would ask for one on the terminal.
        context.load_cert_chain(certificate, key, password="")
    except (ssl.SSLError, ValueError) as error:
        reason = getattr(error, "reason", None) or str(error)
        raise UserError(
            f"{names[0]} = {certificate}: it and its key {key} cannot be used "
            f"({reason.replace('_', ' ').lower()}); both must be PEM, without a passphrase"
        ) from None
    return context
