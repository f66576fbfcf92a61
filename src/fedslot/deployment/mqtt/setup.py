"""The files of a cell behind certificates: authority, certificates, the PS's key, access rules and configuration.

ca-key.pem          the authority's key, to be kept off the network
broker/             mosquitto.conf, acl, ca.pem, broker.pem, broker-key.pem, crl.pem (revoked certificates)
ps/                 ca.pem, ps.pem, ps-key.pem, ps-sign.pem
ue7/                ca.pem, ue7.pem, ue7-key.pem, ps-sign.pub: all that the device of UE 7 needs
"""

from __future__ import annotations

import datetime
import ipaddress
import os
import pwd
import re
import shutil
import stat
from collections.abc import Sequence
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from fedslot.deployment.mqtt.messages import PS, ue_name
from fedslot.deployment.mqtt.signing import make_keys
from fedslot.support.errors import InputError, RefusedError

USER = "mosquitto"  # whose rights the broker takes if root starts it, before it reads its key
HOST = re.compile(r"[A-Za-z0-9]([A-Za-z0-9.-]{0,251}[A-Za-z0-9])?")
BROKER, SIGN, CRL = "broker", "ps-sign", "crl.pem"
CONFIGURATION = """\
listener {port}
cafile {folder}/ca.pem
certfile {folder}/broker.pem
keyfile {folder}/broker-key.pem
crlfile {folder}/crl.pem
require_certificate true
use_identity_as_username true
use_username_as_clientid true
acl_file {folder}/acl
max_packet_size {most_bytes}
set_tcp_nodelay true
"""
RULES = "pattern write fedslot/+/%u/#\n\nuser ps\ntopic read fedslot/#\n"
RULE = "\nuser {name}\ntopic read fedslot/+/ps/#\n"


class Authority:
    """A certificate authority in a folder, new or made before."""

    def __init__(self, folder: Path, days: int) -> None:
        self.folder, self.days, self._key_file, self._file = folder, days, folder / "ca-key.pem", folder / "ca.pem"
        if self._key_file.exists():
            try:
                key = serialization.load_pem_private_key(self._key_file.read_bytes(), None)
                self._own = x509.load_pem_x509_certificate(self._file.read_bytes())
            except (TypeError, ValueError) as error:
                raise RefusedError(f"the authority in {folder} cannot be read ({error}); restore its files") from None
            assert isinstance(key, ec.EllipticCurvePrivateKey)
            self._key = key
            return
        if self._file.exists():
            raise RefusedError(f"{self._key_file} is missing; put the key of {self._file} there if it is kept offline")
        self._key = ec.generate_private_key(ec.SECP256R1())
        usage = dict.fromkeys(USAGES, False) | {"key_cert_sign": True, "crl_sign": True}
        self._own = (
            self._begin("fedslot", self._key.public_key(), x509.Name([_common("fedslot")]))
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(x509.KeyUsage(**usage), critical=True)
            .sign(self._key, hashes.SHA256())
        )
        _write_key(self._key_file, self._key)
        self._file.write_bytes(self._own.public_bytes(serialization.Encoding.PEM))

    def certify(self, name: str, hosts: Sequence[str] = ()) -> None:
        """Write NAME/NAME.pem, NAME/NAME-key.pem and NAME/ca.pem, unless they are there. hosts: of a server.

        A server that has other hosts than its certificate gets a new one.
        """
        home, key = self.folder / name, ec.generate_private_key(ec.SECP256R1())
        file, alternatives = home / f"{name}.pem", [_host(host) for host in hosts] or [x509.DNSName(name)]
        home.mkdir(mode=0o755 if hosts else 0o700, exist_ok=True)
        if file.exists() and not (hosts and _hosts_of(file) != x509.SubjectAlternativeName(alternatives)):
            return
        certificate = (
            self._begin(name, key.public_key(), self._own.subject)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(x509.SubjectAlternativeName(alternatives), critical=False)
            .sign(self._key, hashes.SHA256())
        )
        shutil.copy(self._file, home)
        _write_key(home / f"{name}-key.pem", key)
        file.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))

    def revoke(self, certificates: Sequence[x509.Certificate]) -> bytes:
        """Return the list of revoked certificates (CRL): these, and those that the broker's list has already."""
        now, day, file = datetime.datetime.now(datetime.UTC), datetime.timedelta(days=1), self.folder / BROKER / CRL
        before = list(x509.load_pem_x509_crl(file.read_bytes())) if file.exists() else []
        numbers = dict.fromkeys([*(each.serial_number for each in before), *(c.serial_number for c in certificates)])
        builder = x509.CertificateRevocationListBuilder(self._own.subject, now - day, now + self.days * day)
        for number in numbers:
            gone = x509.RevokedCertificateBuilder().serial_number(number).revocation_date(now - day)
            builder = builder.add_revoked_certificate(gone.build())
        return builder.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)

    def _begin(self, name: str, key: ec.EllipticCurvePublicKey, issuer: x509.Name) -> x509.CertificateBuilder:
        now, day = datetime.datetime.now(datetime.UTC), datetime.timedelta(days=1)
        number, ends = x509.random_serial_number(), now + self.days * day
        own, above = (x509.SubjectKeyIdentifier.from_public_key(each) for each in (key, self._key.public_key()))
        return (
            x509.CertificateBuilder(issuer, x509.Name([_common(name)]), key, number, now - day, ends)
            .add_extension(own, critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(above), critical=False)
        )


USAGES = (
    "digital_signature",
    "content_commitment",
    "key_encipherment",
    "data_encipherment",
    "key_agreement",
    "key_cert_sign",
    "crl_sign",
    "encipher_only",
    "decipher_only",
)


def write_setup(folder: Path, hosts: Sequence[str], ues: int, port: int, most_bytes: int, days: int) -> None:
    """Write the files of a cell of UEs 0 to `ues` - 1, or those that are missing in its folder.

    hosts: addresses and names by which the broker is reached. port: of the broker. most_bytes: of a message.
    days: for which the certificates are valid.
    """
    folder = folder.absolute()
    if any(character.isspace() for character in str(folder)):
        raise InputError("folder", str(folder), "a path without spaces, which mosquitto.conf names")
    for host in hosts:
        _host(host)
    user = _broker_user(folder)
    folder.mkdir(parents=True, exist_ok=True)
    authority = Authority(folder, days)
    authority.certify(BROKER, hosts)
    authority.certify(PS)
    signing = folder / PS / f"{SIGN}.pem"
    public = signing.with_suffix(".pub") if signing.exists() else make_keys(signing)
    for name in map(ue_name, range(ues)):
        authority.certify(name)
        shutil.copy(public, folder / name)
    files = [file for file in folder.glob("ue*/ue*.pem") if file.stem == file.parent.name]  # more than now, perhaps
    names = sorted((file.stem for file in files), key=lambda name: (len(name), name))
    home = folder / BROKER
    (home / "mosquitto.conf").write_text(CONFIGURATION.format(port=port, folder=home, most_bytes=most_bytes))
    (home / "acl").write_text(RULES + "".join(RULE.format(name=name) for name in names))
    (home / "acl").chmod(0o600)
    (home / CRL).write_bytes(authority.revoke([]))
    if user is not None:
        for file in home.iterdir():
            os.chown(file, user.pw_uid, user.pw_gid)


def revoke(folder: Path, ues: Sequence[int], days: int) -> None:
    """Revoke the certificates of devices in the folder of a cell, and remove their files.

    days: for which the list of revoked certificates is valid.
    """
    files = {ue: folder / ue_name(ue) / f"{ue_name(ue)}.pem" for ue in ues}
    for ue, file in files.items():
        if not file.is_file():
            raise InputError("ue", ue, f"a UE with a certificate in {folder}")
    for needed in (folder / "ca-key.pem", folder / BROKER):
        if not needed.exists():
            raise RefusedError(f"{needed} is missing; it is needed to revoke certificates")
    list_file = folder / BROKER / CRL
    content = Authority(folder, days).revoke([x509.load_pem_x509_certificate(f.read_bytes()) for f in files.values()])
    list_file.write_bytes(content)
    for file in files.values():
        file.unlink()
        file.with_name(f"{file.stem}-key.pem").unlink(missing_ok=True)


def _broker_user(folder: Path) -> pwd.struct_passwd | None:
    """Return the user that must be able to read the broker's files; None if that is who runs this."""
    if os.geteuid() != 0:
        return None
    try:
        user = pwd.getpwnam(USER)
    except KeyError:
        return None
    for above in [each for each in (folder, *folder.parents) if each.is_dir()]:
        if not above.stat().st_mode & stat.S_IXOTH:
            raise RefusedError(f"the broker's user {USER} cannot enter {above}; choose a folder such as /etc/fedslot")
    return user


def _common(name: str) -> x509.NameAttribute[str]:
    return x509.NameAttribute(x509.NameOID.COMMON_NAME, name)


def _host(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        if not HOST.fullmatch(host):
            raise InputError("host", host, "an address, or a name of letters, digits, dots and hyphens") from None
        return x509.DNSName(host)


def _hosts_of(file: Path) -> x509.SubjectAlternativeName:
    certificate = x509.load_pem_x509_certificate(file.read_bytes())
    return certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value


def _write_key(file: Path, key: ec.EllipticCurvePrivateKey) -> None:
    form = serialization.PrivateFormat.PKCS8
    text = key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption())
    with os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as stream:
        stream.write(text)
