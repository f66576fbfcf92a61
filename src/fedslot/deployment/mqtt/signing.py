"""Messages that the PS signs, so that devices with its public key need not trust the broker.

    FSK1, signature (Ed25519, 64 bytes), length of the header (unsigned, 32 bits, little endian), header, content

The signature covers all that follows it. The header is JSON: the cell, the kind of the message, the session of the PS,
which is new whenever it starts, and the number of the message in it. So a message means nothing elsewhere or later:
numbers of a kind rise, and a device takes part in a session only after the PS named the device in it, by the random
name that the device drew when it started. A session of the past does not have this name, and no clock is needed.

A model is not signed: the signed announcement has its hash. Only keys need `cryptography`.
"""

from __future__ import annotations

import itertools
import json
import os
import secrets
import struct
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedslot.deployment.mqtt.messages import MEMBERS
from fedslot.deployment.screening import Refusal
from fedslot.support.errors import InputError
from fedslot.support.extras import lacking

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

MAGIC = b"FSK1"
SIGNATURE = 64  # bytes
LENGTH = struct.Struct("<I")


def write_members(nodes: list[str]) -> bytes:
    """Return the message that names the devices that are here."""
    return json.dumps(nodes).encode()


class Signer:
    """Signs what the PS of a cell says. key: file of its private key; None: messages stay as they are."""

    def __init__(self, cell: str, key: str | Path | None = None) -> None:
        self.cell, self.session = cell, secrets.token_hex(8)
        self._key, self._numbers = None if key is None else read_private_key(key), itertools.count()

    @property
    def signs(self) -> bool:
        """Whether there is a key."""
        return self._key is not None

    def seal(self, kind: str, content: bytes) -> bytes:
        """Return a message with its signature."""
        if self._key is None:
            return content
        fields = {"cell": self.cell, "kind": kind, "session": self.session, "number": next(self._numbers)}
        header = json.dumps(fields).encode()
        signed = LENGTH.pack(len(header)) + header + content
        return MAGIC + self._key.sign(signed) + signed


class Verifier:
    """Checks at a device what the PS of a cell says.

    key: file of the PS's public key; None: whatever comes is taken, signed or not. node: the name of the device.
    """

    def __init__(self, cell: str, key: str | Path | None = None, node: str = "") -> None:
        self.cell, self.node = cell, node
        self._key = None if key is None else read_public_key(key)
        self._session, self._past = "", set[str]()  # the session that named this device, and those before it
        self._numbers: dict[str, int] = {}  # the last one of each kind in this session

    def open(self, kind: str, message: bytes) -> tuple[bytes, str]:
        """Return the content of a message, and why it is none of now, or "" if it is.

        Raise `Refusal` if it is not by the PS.
        """
        is_signed = message.startswith(MAGIC)
        if self._key is None:
            return (_split(message)[1] if is_signed else message), ""
        if not is_signed:
            raise Refusal("unsigned", "it has no signature")
        self._check(message)
        header, content = _split(message)
        session, number = str(header.get("session")), header.get("number")
        if (header.get("cell"), header.get("kind")) != (self.cell, kind) or type(number) is not int:
            raise Refusal("replay", "signed for another cell or another kind of message")
        if kind == MEMBERS and session not in {*self._past, self._session} and self.node in json.loads(content):
            self._past.add(self._session)
            self._session, self._numbers = session, {}
        if session != self._session:
            return content, "of a session in which the PS has not named this device"
        if number <= self._numbers.get(kind, -1):
            return content, "older than the last one"
        self._numbers[kind] = number
        return content, ""

    def _check(self, message: bytes) -> None:
        from cryptography.exceptions import InvalidSignature

        start = len(MAGIC) + SIGNATURE
        try:
            assert self._key is not None
            self._key.verify(message[len(MAGIC) : start], message[start:])
        except InvalidSignature:
            raise Refusal("signature", "not signed with the key of the PS") from None


def _split(message: bytes) -> tuple[dict[str, Any], bytes]:
    """Return the header and the content of a signed message."""
    start = len(MAGIC) + SIGNATURE
    try:
        (length,) = LENGTH.unpack_from(message, start)
        start += LENGTH.size
        header = json.loads(message[start : start + length])
        if not isinstance(header, dict):
            raise ValueError("the header is not a JSON object")
    except (struct.error, ValueError, RecursionError) as error:
        raise Refusal("malformed", str(error)) from None
    return header, message[start + length :]


def make_keys(file: Path) -> Path:
    """Write a new private key to a file, and its public key beside it, `NAME.pub`; return the latter."""
    serialization = _serialization()
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    public = file.with_suffix(".pub")
    for each in (file, public):
        if each.exists() or public == file:
            raise InputError("file", str(file), f"a name that does not end in .pub and is free; {each} is taken")
    key, pem = Ed25519PrivateKey.generate(), serialization.Encoding.PEM
    private = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    with os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as stream:
        stream.write(private)
    public.write_bytes(key.public_key().public_bytes(pem, serialization.PublicFormat.SubjectPublicKeyInfo))
    return public


def read_private_key(file: str | Path) -> Ed25519PrivateKey:
    """Return the PS's key to sign with."""
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    try:
        key = _serialization().load_pem_private_key(Path(file).read_bytes(), None)
    except (OSError, ValueError, TypeError) as error:
        raise InputError("sign-key", str(file), f"the file of a private key in PEM format ({error})") from None
    if not isinstance(key, Ed25519PrivateKey):
        raise InputError("sign-key", str(file), "an Ed25519 key; `fedslot mqtt key FILE` makes one")
    return key


def read_public_key(file: str | Path) -> Ed25519PublicKey:
    """Return the PS's key to check with."""
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    try:
        key = _serialization().load_pem_public_key(Path(file).read_bytes())
    except (OSError, ValueError, TypeError) as error:
        raise InputError("ps-key", str(file), f"the file of a public key in PEM format ({error})") from None
    if not isinstance(key, Ed25519PublicKey):
        raise InputError("ps-key", str(file), "an Ed25519 key; `fedslot mqtt key FILE` makes one")
    return key


def _serialization() -> Any:
    try:
        from cryptography.hazmat.primitives import serialization
    except ModuleNotFoundError:
        raise lacking("a key of the PS", "cryptography", "mqtt") from None
    return serialization
