"""Ports, certificates and run folders for tests with real servers on the loopback."""

from __future__ import annotations

import datetime
import ipaddress
import socket
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

LOOPBACK = ipaddress.ip_address("127.0.0.1")
PEM, NO_PASSWORD = serialization.Encoding.PEM, serialization.NoEncryption()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def rows(folder: Path) -> int:
    """Return the number of rounds that a run has written."""
    file = folder / "rounds.csv"
    return max(0, file.read_text("utf-8").count("\n") - 1) if file.is_file() else 0


class Authority:
    """A certificate authority, whose own certificate is NAME.pem in the folder."""

    def __init__(self, folder: Path, name: str) -> None:
        self.folder, self.name, self.key = folder, name, ec.generate_private_key(ec.SECP256R1())
        self._write(name, name, self.key)

    def certify(self, name: str, file: str | None = None) -> None:
        """Write a certificate for a name on the loopback, FILE.pem, and its key, FILE-key.pem."""
        key = ec.generate_private_key(ec.SECP256R1())
        private = key.private_bytes(PEM, serialization.PrivateFormat.PKCS8, NO_PASSWORD)
        (self.folder / f"{file or name}-key.pem").write_bytes(private)
        self._write(file or name, name, key)

    def _write(self, file: str, name: str, key: ec.EllipticCurvePrivateKey) -> None:
        subject, issuer = (x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, of)]) for of in (name, self.name))
        now, day = datetime.datetime.now(datetime.UTC), datetime.timedelta(days=1)
        number, where = x509.random_serial_number(), [x509.DNSName("localhost"), x509.IPAddress(LOOPBACK)]
        certificate = (
            x509.CertificateBuilder(issuer, subject, key.public_key(), number, now - day, now + day)
            .add_extension(x509.BasicConstraints(ca=name == self.name, path_length=None), critical=True)
            .add_extension(x509.SubjectAlternativeName(where), critical=False)
            .sign(self.key, hashes.SHA256())
        )
        (self.folder / f"{file}.pem").write_bytes(certificate.public_bytes(PEM))
