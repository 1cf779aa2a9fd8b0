"""Search for a stack's private key in files of any name, format and white space.

A key is compared by its numbers, not by its text: a copy with other line ends, another comment or a
passphrase, in PKCS#8 in place of OpenSSH's format, or within a larger file has the same numbers. A key that
was compressed, encrypted as a whole, or lies in a file of more than :data:`LARGEST` bytes is not recognised.
"""

from __future__ import annotations

import binascii
import itertools
import re
from collections.abc import Collection

__all__ = ["LARGEST", "key_numbers", "may_hold_key", "shows_key"]

LARGEST = 1 << 20
"""Size limit in bytes of a file that is searched for keys."""
_MARK = b"PRIVATE KEY-----"
_LINE = re.compile(rb"-----(BEGIN|END) [A-Z ]{0,64}PRIVATE KEY-----")
"""The first and the last line of a key; the longest kinds of keys in use have some twenty letters."""
_NO_BASE64 = re.compile(rb"\\[nrt]|[^A-Za-z0-9+/]")
"""White space, and its escapes in a file that quotes the key."""
_OPENSSH = b"openssh-key-v1\0"
_SIZE = 32
"""Bytes of an ed25519 key's public number, and of its private number."""
_PUBLIC = b"\0\0\0\x0bssh-ed25519\0\0\0\x20"
_PAIR = b"\0\0\0\x40"
"""Prefix of the private and the public number in OpenSSH's format."""


def may_hold_key(content: bytes) -> bool:
    """Return whether the content seems to hold a private key, by a cheap test."""
    return _MARK in content


def key_numbers(content: bytes) -> frozenset[bytes]:
    """Return the public and, where they are not encrypted, the private numbers of ed25519 keys in OpenSSH's
    format."""
    found = set()
    for block in _blocks(content):
        if not block.startswith(_OPENSSH):
            continue
        for match in re.finditer(re.escape(_PUBLIC) + b"(.{32})", block, re.DOTALL):
            public = match[1]
            found.add(public)
            end = block.find(public, match.end())
            while end >= 0:
                if block[end - _SIZE - len(_PAIR) : end - _SIZE] == _PAIR:
                    found.add(block[end - _SIZE : end])
                end = block.find(public, end + 1)
    return frozenset(found)


def shows_key(content: bytes, numbers: Collection[bytes]) -> bool:
    """Return whether a private key in the content has one of ``numbers``."""
    return any(number in block for block in _blocks(content) for number in numbers)


def _blocks(content: bytes) -> list[bytes]:
    """Return the decoded private keys of the content; omit blocks that are not base64.

    Each reaches from its first line to the next first or last one, so that all of them together are no longer
    than the content.
    """
    decoded = []
    lines = list(_LINE.finditer(content))
    for line, after in itertools.zip_longest(lines, lines[1:]):
        if line[1] != b"BEGIN":
            continue
        text = _NO_BASE64.sub(b"", content[line.end() : after.start() if after else len(content)])
        try:
            decoded.append(binascii.a2b_base64(text + b"=" * (-len(text) % 4)))
        except binascii.Error:
            continue
    return decoded
