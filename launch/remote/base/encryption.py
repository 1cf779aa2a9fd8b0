"""Authenticated encryption between the supervisor and mpirun's runners, over plain TCP.

The user's values in a SPEC (variables, arguments) must not cross the network in the clear, and TLS in each
rank's runner would triple the runner's start time: importing :mod:`ssl` costs 13 ms of processor time,
``_blake2`` 0.05 ms. So this module is built on BLAKE2b alone, from parts that are each standard:

- *Keys.* The secret is the cluster's private key, a file with the same bytes on every node of a stack and on
  no other machine but the operator's. BLAKE2b of the file is the root key; keyed with it, BLAKE2b of the
  launch's random token gives the launch's own keys, one for each purpose (``person`` separates them). A token
  is used for one launch, and does not reveal a key.
- *Encryption.* Keyed BLAKE2b is a pseudorandom function; of ``nonce || counter`` it makes a keystream
  (counter mode) with which the text is XORed. A nonce has 24 random bytes: none repeats under one key.
- *Authentication.* Encrypt-then-MAC: keyed BLAKE2b over context, nonce and ciphertext, of 32 bytes, compared
  in constant time before anything is decrypted. The context (the frame's name and its rank) is not
  sent: a message for another rank is refused.

Limits: whoever reads the cluster's private key can decrypt everything, also what was recorded earlier (there
is no forward secrecy), and every process of the user on a node may read the key. Lengths are visible. A
message replayed to the same rank of the same launch is not detected here; a runner takes one SPEC.
"""

from __future__ import annotations

import os
from _blake2 import blake2b  # hashlib imports half of the standard library around it
from _operator import _compare_digest

from launch.remote.base.files import expand_home

__all__ = ["CLUSTER_KEY", "NotAuthentic", "SharedKey", "is_equal"]

CLUSTER_KEY = "~/.ssh/id_ed25519"
"""Private key shared by the nodes of a stack and by nobody else; cloud-init installs it."""

_NONCE, _TAG, _BLOCK = 24, 32, 64


class NotAuthentic(ValueError):
    """A message that was not encrypted with this key for this context, or was changed in transit."""


class SharedKey:
    """The keys of one launch, from ``secret``, the cluster key's file, and ``token``, random per launch."""

    def __init__(self, secret: bytes, token: str) -> None:
        root = blake2b(secret, person=b"ranklift-root").digest()
        given = token.encode()
        self._encryption = blake2b(given, key=root, person=b"ranklift-encrypt").digest()
        self._authentication = blake2b(given, key=root, person=b"ranklift-auth").digest()
        self._proof = blake2b(given, key=root, person=b"ranklift-proof").digest()

    @classmethod
    def of_cluster(cls, token: str) -> SharedKey:
        """Return the keys from this node's cluster key. Raise OSError when the node has none."""
        with open(expand_home(CLUSTER_KEY), "rb", buffering=0) as file:
            secret = file.read()
        if not secret:
            raise OSError(0, "it is empty", CLUSTER_KEY)
        return cls(secret, token)

    def proof(self, words: bytes) -> str:
        """Return the proof that the sender of ``words`` has the key: 64 hexadecimal digits."""
        return blake2b(words, key=self._proof, digest_size=_TAG).hexdigest()

    def encrypt(self, text: bytes, context: bytes, nonce: bytes = b"") -> bytes:
        """Return nonce, ciphertext and tag; only tests pass a ``nonce``."""
        nonce = nonce or os.urandom(_NONCE)
        sealed = nonce + self._xor(text, nonce)
        return sealed + self._tag(sealed, context)

    def decrypt(self, message: bytes, context: bytes) -> bytes:
        """Return the decrypted text. Raise :class:`NotAuthentic`."""
        sealed, tag = message[:-_TAG], message[-_TAG:]
        if len(sealed) < _NONCE or not _compare_digest(tag, self._tag(sealed, context)):
            raise NotAuthentic("not encrypted with this cluster's key, or changed on its way")
        return self._xor(sealed[_NONCE:], sealed[:_NONCE])

    def _tag(self, sealed: bytes, context: bytes) -> bytes:
        words = len(context).to_bytes(8, "big") + context + sealed
        return blake2b(words, key=self._authentication, digest_size=_TAG).digest()

    def _xor(self, text: bytes, nonce: bytes) -> bytes:
        key, size = self._encryption, len(text)
        blocks = [
            blake2b(nonce + counter.to_bytes(8, "big"), key=key).digest()
            for counter in range(-(-size // _BLOCK))
        ]
        stream = b"".join(blocks)[:size]
        return (int.from_bytes(text, "big") ^ int.from_bytes(stream, "big")).to_bytes(size, "big")


def is_equal(given: str, expected: str) -> bool:
    """Return whether two secrets are equal, in a time that does not depend on where they differ.

    >>> is_equal("abc", "abc"), is_equal("abd", "abc"), is_equal("ab", "abc"), is_equal("é", "abc")
    (True, False, False, False)
    """
    return _compare_digest(given.encode("utf-8", "surrogateescape"), expected.encode())
