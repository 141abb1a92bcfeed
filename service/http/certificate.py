"""The certificate of the service.

Imports nothing heavy, for `rtagent serve` uses it in the supervisor's process.
"""

from __future__ import annotations

from pathlib import Path

from rtagent.errors import UserError
from rtagent.files.certificate import tls_context


def check_certificate(certificate: Path | None, private_key: Path | None) -> bool:
    """Refuse a certificate that cannot be used, before anything is started.

    Args:
        certificate: PEM file. If None, no TLS.
        private_key: PEM file. If None, the key is in the certificate's file.

    Returns:
        Whether there is a certificate.

    Raises:
        UserError: the certificate or its key cannot be read, or they do not belong together.
    """
    if certificate is None:
        if private_key is not None:
            raise UserError("service.private_key needs service.certificate")
        return False
    tls_context(certificate, private_key)
    return True
