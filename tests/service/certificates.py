"""Certificates for tests, made by the OpenSSL that is installed."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Certificate:
    """A self-signed certificate and its key."""

    certificate: Path
    key: Path


def make_certificate(folder: Path, name: str = "hub.example") -> Certificate:
    """A certificate for a name and for 127.0.0.1."""
    made = Certificate(folder / f"{name}.pem", folder / f"{name}.key")
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1",
         "-nodes", "-days", "2", "-subj", f"/CN={name}", "-addext",
         f"subjectAltName=DNS:{name},IP:127.0.0.1", "-out", str(made.certificate), "-keyout",
         str(made.key)],
        check=True, capture_output=True,
    )
    return made
