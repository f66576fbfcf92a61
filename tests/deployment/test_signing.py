"""Signatures of the PS: nothing that it did not say, or did not say now, passes for its word."""

from __future__ import annotations

import stat
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("cryptography")

from fedslot import InputError
from fedslot.deployment.mqtt.messages import FRAME, MEMBERS, STATUS
from fedslot.deployment.mqtt.signing import Signer, Verifier, make_keys, write_members
from fedslot.deployment.screening import Refusal

NODE = "a-device"
Keys = tuple[Path, Path]


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Keys:
    private = tmp_path_factory.mktemp("keys") / "ps.pem"
    return private, make_keys(private)


def begin(keys: Keys, cell: str = "cell") -> tuple[Signer, Verifier]:
    """Return the PS, and a device that it has named."""
    signer, verifier = Signer(cell, keys[0]), Verifier(cell, keys[1], NODE)
    name(signer, verifier)
    return signer, verifier


def name(signer: Signer, verifier: Verifier) -> bytes:
    message = signer.seal(MEMBERS, write_members(["another", verifier.node]))
    assert verifier.open(MEMBERS, message)[1] == ""
    return message


def test_what_the_ps_says_now_is_taken(keys: Keys) -> None:
    signer, verifier = begin(keys)
    for kind, content in [(FRAME, b"{}"), (STATUS, b""), (FRAME, b"\n\x00" * 9)]:
        assert verifier.open(kind, signer.seal(kind, content)) == (content, "")


def test_keys_need_not_be_on_both_sides(keys: Keys) -> None:
    """A device without a key takes everything, also of a PS that signs."""
    trusting = Verifier("cell")
    assert trusting.open(FRAME, Signer("cell", keys[0]).seal(FRAME, b"{}")) == (b"{}", "")
    assert trusting.open(FRAME, Signer("cell").seal(FRAME, b"{}")) == (b"{}", "")
    with pytest.raises(Refusal, match="unsigned"):
        Verifier("cell", keys[1]).open(FRAME, Signer("cell").seal(FRAME, b"{}"))


@given(data=st.data())
def test_no_byte_of_a_message_can_be_changed(data: st.DataObject, keys: Keys) -> None:
    signer, verifier = begin(keys)
    message = bytearray(signer.seal(FRAME, b'{"round": 3}'))
    place = data.draw(st.integers(0, len(message) - 1))
    message[place] ^= data.draw(st.integers(1, 255))
    with pytest.raises(Refusal):
        verifier.open(FRAME, bytes(message))


@given(message=st.binary() | st.binary().map(lambda tail: b"FSK1" + tail))
def test_any_bytes_are_refused(message: bytes, keys: Keys) -> None:
    with pytest.raises(Refusal):
        Verifier("cell", keys[1]).open(FRAME, message)
    with suppress(Refusal):
        assert isinstance(Verifier("cell").open(FRAME, message)[0], bytes)


@pytest.mark.parametrize(
    "seal",
    [
        lambda signer, keys: Signer("other", keys[0]).seal(FRAME, b""),  # of another cell
        lambda signer, keys: signer.seal(STATUS, b""),  # on another topic
        lambda signer, keys: Signer("cell", make_keys(keys[0].with_name("other.pem")).with_suffix(".pem")).seal(
            FRAME, b""
        ),
    ],
    ids=["another cell", "another kind", "another key"],
)
def test_a_message_means_nothing_elsewhere(seal: Callable[[Signer, Keys], bytes], keys: Keys) -> None:
    signer, verifier = begin(keys)
    with pytest.raises(Refusal):
        verifier.open(FRAME, seal(signer, keys))


def test_old_messages_are_known_as_old(keys: Keys) -> None:
    signer, verifier = begin(keys)
    first, second = (signer.seal(FRAME, content) for content in (b"1", b"2"))
    assert verifier.open(FRAME, second) == (b"2", "")
    for old in (first, second):
        assert verifier.open(FRAME, old)[1] == "older than the last one"


def test_a_session_of_the_past_cannot_be_played_again(keys: Keys) -> None:
    signer, verifier = begin(keys)
    said = [signer.seal(MEMBERS, write_members([NODE, "more"])), signer.seal(FRAME, b"old")]
    restarted = Signer("cell", keys[0])
    frame = restarted.seal(FRAME, b"new")
    assert "not named" in verifier.open(FRAME, frame)[1]  # not yet
    name(restarted, verifier)
    assert verifier.open(FRAME, frame) == (b"new", "")
    for kind, message in zip((MEMBERS, FRAME), said, strict=True):  # to this device, which was in it ...
        assert "not named" in verifier.open(kind, message)[1]
    late = Verifier("cell", keys[1], "came later")  # ... and to one that was not
    for kind, message in zip((MEMBERS, FRAME), said, strict=True):
        assert "not named" in late.open(kind, message)[1]


def test_keys_are_files_of_one_kind(keys: Keys, tmp_path: Path) -> None:
    private, public = keys
    assert stat.S_IMODE(private.stat().st_mode) == 0o600
    with pytest.raises(InputError, match="is taken"):
        make_keys(private)
    with pytest.raises(InputError, match="file of a private key"):
        Signer("cell", public)
    with pytest.raises(InputError, match="file of a public key"):
        Verifier("cell", private)
    with pytest.raises(InputError, match="No such file"):
        Verifier("cell", tmp_path / "none")
