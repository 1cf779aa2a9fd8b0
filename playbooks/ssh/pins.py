"""The pinned host keys of a stack's nodes: its known_hosts."""

from __future__ import annotations

import base64
import binascii
from pathlib import Path

import paramiko

from launch.errors import InputError

__all__ = ["read_pins"]


def read_pins(path: Path) -> dict[str, paramiko.PKey]:
    """Return the pinned host key of each name in a known_hosts file.

    Raises :class:`~launch.errors.InputError` naming the line that cannot be read.
    """
    pins: dict[str, paramiko.PKey] = {}
    decoded: dict[str, paramiko.PKey] = {}
    for number, line in enumerate(path.read_text(errors="backslashreplace").splitlines(), start=1):
        if not line.strip() or line.startswith("#"):
            continue
        try:
            names, _, text = line.split()[:3]
            # Every node of a stack has the same key: decode it once, not 300 times.
            key = decoded.get(text) or paramiko.Ed25519Key(data=base64.b64decode(text, validate=True))
        except (ValueError, binascii.Error, paramiko.SSHException) as error:
            raise InputError(
                f"{path}, line {number}",
                line[:60],
                f"not an ed25519 host key ({error})",
                "run `fab status`",
            ) from None
        decoded[text] = key
        pins.update(dict.fromkeys(names.split(","), key))
    return pins
