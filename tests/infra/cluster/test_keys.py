"""Key pairs that live in the stack's state."""

import base64
import subprocess
from pathlib import Path

from cryptography.hazmat.primitives.serialization import load_ssh_private_key

from infra.cluster.keys import KeyPairProvider


def test_the_halves_belong_together() -> None:
    made = KeyPairProvider().create({})
    assert made.outs is not None
    key = load_ssh_private_key(made.outs["private_key"].encode(), None)
    private, public = key.public_key(), made.outs["public_key"].split()
    assert public[0] == "ssh-ed25519"
    assert base64.b64decode(public[1]).endswith(private.public_bytes_raw())  # type: ignore[union-attr]
    assert len(public) == 2


def test_openssh_reads_the_private_half(tmp_path: Path) -> None:
    made = KeyPairProvider().create({})
    assert made.outs is not None
    key = tmp_path / "key"
    key.touch(0o600)
    key.write_text(made.outs["private_key"])
    shown = subprocess.run(
        ["ssh-keygen", "-y", "-f", str(key)], capture_output=True, text=True, check=True, timeout=60
    )
    assert shown.stdout.split()[:2] == made.outs["public_key"].split()


def test_no_two_are_alike() -> None:
    made = [KeyPairProvider().create({}) for _ in range(3)]
    assert len({each.id for each in made}) == 3


def test_an_update_never_changes_a_key() -> None:
    assert KeyPairProvider().diff("id", {"private_key": "a"}, {}).changes is False
