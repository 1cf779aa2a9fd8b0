"""What only nodes of one cluster can read, and only as it was sent."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from launch.remote.base.encryption import CLUSTER_KEY, NotAuthentic, SharedKey

KEY = SharedKey(b"the cluster's private key\n", "00112233445566778899aabbccddeeff")
TEXT = b"d8:user_envd6:SECRET3:abcee"
NONCE = bytes(range(24))


def test_vectors() -> None:
    """Both ends may run another Python: what goes between them is the same bytes everywhere."""
    assert KEY.encrypt(TEXT, b"SPEC of rank 3", NONCE).hex() == (
        "000102030405060708090a0b0c0d0e0f1011121314151617"
        "e56095b8e4aa039ded0b758983831a3852d8d3d45edc703d9af79722990ad8de"
        "48837b6468c65f57248b0555610c4ee30077a2991c904404507cac"
    )
    assert KEY.proof(b"rank 3") == "c8d8e9bd93ec69c8357dad98d445a01fa575f91620e31ce953aa548749c2d2b8"


@pytest.mark.parametrize("size", [0, 1, 63, 64, 65, 4096, 100_003])
def test_what_is_encrypted_comes_back(size: int) -> None:
    text = bytes(size - 1) + b"\xff" if size else b""
    assert KEY.decrypt(KEY.encrypt(text, b"c"), b"c") == text


def test_the_same_text_never_looks_the_same() -> None:
    first, second = KEY.encrypt(bytes(4096), b"c"), KEY.encrypt(bytes(4096), b"c")
    assert len(first) == 4096 + 24 + 32
    assert not any(first[at : at + 8] == second[at : at + 8] for at in range(len(first) - 8))


def test_a_change_of_any_bit_is_refused() -> None:
    message = KEY.encrypt(TEXT, b"c")
    for at in range(len(message)):
        for bit in range(8):
            changed = bytearray(message)
            changed[at] ^= 1 << bit
            with pytest.raises(NotAuthentic):
                KEY.decrypt(bytes(changed), b"c")


@pytest.mark.parametrize("size", [0, 1, 31, 32, 55, 56, 80])
def test_a_message_that_was_cut_is_refused(size: int) -> None:
    with pytest.raises(NotAuthentic):
        KEY.decrypt(KEY.encrypt(TEXT, b"c")[:size], b"c")


@pytest.mark.parametrize(
    ("other", "context"),
    [
        pytest.param(SharedKey(b"another cluster's", "00112233445566778899aabbccddeeff"), b"c", id="cluster"),
        pytest.param(SharedKey(b"the cluster's private key\n", "00"), b"c", id="launch"),
        pytest.param(KEY, b"d", id="context"),
    ],
)
def test_what_was_meant_for_others_is_refused(other: SharedKey, context: bytes) -> None:
    with pytest.raises(NotAuthentic):
        other.decrypt(KEY.encrypt(TEXT, b"c"), context)


def test_no_two_messages_are_proved_by_the_same() -> None:
    assert KEY.proof(b"rank 3") != KEY.proof(b"rank 4")
    assert KEY.proof(b"rank 3") != SharedKey(b"the cluster's private key\n", "00").proof(b"rank 3")


def test_the_cluster_key_is_read_from_the_users_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / ".ssh").mkdir()
    with pytest.raises(FileNotFoundError):
        SharedKey.of_cluster("t")
    (tmp_path / ".ssh/id_ed25519").touch()
    with pytest.raises(OSError, match="it is empty") as caught:
        SharedKey.of_cluster("t")
    assert (caught.value.errno, caught.value.filename) == (0, CLUSTER_KEY)
    (tmp_path / ".ssh/id_ed25519").write_bytes(b"k")
    assert SharedKey.of_cluster("t").proof(b"") == SharedKey(b"k", "t").proof(b"")
    if os.geteuid():
        (tmp_path / ".ssh/id_ed25519").chmod(0)
        with pytest.raises(PermissionError) as refused:
            SharedKey.of_cluster("t")
        assert refused.value.errno == errno.EACCES
