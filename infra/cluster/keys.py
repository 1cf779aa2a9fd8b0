"""Ed25519 key pairs that are made once and live in the stack's state, private halves encrypted.

The provider below makes a pair when its resource is created. It never changes afterwards, so that nodes that
join later have the keys of the existing ones.
"""

from __future__ import annotations

from typing import Any

import pulumi
from pulumi import dynamic

__all__ = ["KeyPair", "key_pair_provider", "secret"]


def key_pair_provider() -> dynamic.ResourceProvider:
    """Return the provider that makes key pairs.

    Pulumi stores the provider itself in the stack's state and runs it in another process, which may not find
    this project on its path. A class local to a function travels by value, and what it needs it imports.
    """

    class KeyPairProvider(dynamic.ResourceProvider):
        def create(self, _props: dict[str, Any]) -> dynamic.CreateResult:
            from cryptography.hazmat.primitives import serialization as form
            from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
            from pulumi.dynamic import CreateResult

            key = Ed25519PrivateKey.generate()
            private = key.private_bytes(form.Encoding.PEM, form.PrivateFormat.OpenSSH, form.NoEncryption())
            public = key.public_key().public_bytes(form.Encoding.OpenSSH, form.PublicFormat.OpenSSH)
            pair = {"private_key": private.decode(), "public_key": public.decode()}
            return CreateResult(public.decode().split()[1][-16:], pair)

        def diff(self, _id: str, _olds: dict[str, Any], _news: dict[str, Any]) -> dynamic.DiffResult:
            from pulumi.dynamic import DiffResult

            return DiffResult(changes=False)

    return KeyPairProvider()


def secret(value: pulumi.Output[str]) -> pulumi.Output[str]:
    """Return the value as a secret: Pulumi encrypts it where it stores it and hides it where it prints it."""
    return pulumi.Output.secret(value)


class KeyPair(dynamic.Resource, module="ranklift", name="KeyPair"):
    """One ed25519 key pair, the same for the life of the stack."""

    private_key: pulumi.Output[str]
    """OpenSSH PEM; a secret."""
    public_key: pulumi.Output[str]
    """``ssh-ed25519 AAAA…``, without a comment."""

    def __init__(self, name: str, opts: pulumi.ResourceOptions | None = None) -> None:
        """Register the key pair ``name``."""
        own = pulumi.ResourceOptions(
            additional_secret_outputs=["private_key"],
            # There is nothing to delete outside the state, so destroying needs no provider process.
            retain_on_delete=True,
        )
        super().__init__(
            key_pair_provider(),
            name,
            {"private_key": None, "public_key": None},
            pulumi.ResourceOptions.merge(opts, own),
        )
