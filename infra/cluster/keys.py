"""Ed25519 key pairs that are made once and live in the stack's state, private halves encrypted.

The provider below makes a pair when its resource is created. It never changes afterwards, so that nodes that
join later have the keys of the existing ones.
"""

from __future__ import annotations

from typing import Any

import pulumi
from pulumi import dynamic

from infra.cluster.stored_provider import StoredProvider

__all__ = ["KeyPair", "KeyPairProvider", "secret"]


class KeyPairProvider(StoredProvider):
    """Makes the pair when its resource is created, and never changes it."""

    def create(self, _props: dict[str, Any]) -> dynamic.CreateResult:
        """Return a new pair; the id is the end of its public half."""
        from cryptography.hazmat.primitives import serialization as form
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

        key = Ed25519PrivateKey.generate()
        private = key.private_bytes(form.Encoding.PEM, form.PrivateFormat.OpenSSH, form.NoEncryption())
        public = key.public_key().public_bytes(form.Encoding.OpenSSH, form.PublicFormat.OpenSSH)
        pair = {"private_key": private.decode(), "public_key": public.decode()}
        return dynamic.CreateResult(public.decode().split()[1][-16:], pair)

    def diff(self, _id: str, _olds: dict[str, Any], _news: dict[str, Any]) -> dynamic.DiffResult:
        """Return that nothing differs."""
        return dynamic.DiffResult(changes=False)


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
            KeyPairProvider(),
            name,
            {"private_key": None, "public_key": None},
            pulumi.ResourceOptions.merge(opts, own),
        )
