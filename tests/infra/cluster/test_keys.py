"""Key pairs that live in the stack's state."""

import base64
import subprocess
import sys
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.serialization import load_ssh_private_key
from pulumi.dynamic.dynamic import serialize_provider

from infra.cluster.keys import key_pair_provider

AWAY = """
import base64, sys, dill
provider = dill.loads(base64.b64decode(sys.stdin.read()))
assert not any(name.split(".")[0] in ("infra", "launch", "images") for name in sys.modules)
made = provider.create({})
print(made.outs["public_key"])
"""


def test_the_halves_belong_together() -> None:
    made = key_pair_provider().create({})
    assert made.outs is not None
    key = load_ssh_private_key(made.outs["private_key"].encode(), None)
    private, public = key.public_key(), made.outs["public_key"].split()
    assert public[0] == "ssh-ed25519"
    assert base64.b64decode(public[1]).endswith(private.public_bytes_raw())  # type: ignore[union-attr]
    assert len(public) == 2


def test_openssh_reads_the_private_half(tmp_path: Path) -> None:
    made = key_pair_provider().create({})
    assert made.outs is not None
    key = tmp_path / "key"
    key.touch(0o600)
    key.write_text(made.outs["private_key"])
    shown = subprocess.run(
        ["ssh-keygen", "-y", "-f", str(key)], capture_output=True, text=True, check=True, timeout=60
    )
    assert shown.stdout.split()[:2] == made.outs["public_key"].split()


def test_no_two_are_alike() -> None:
    made = [key_pair_provider().create({}) for _ in range(3)]
    assert len({each.id for each in made}) == 3


def test_an_update_never_changes_a_key() -> None:
    assert key_pair_provider().diff("id", {"private_key": "a"}, {}).changes is False


@pytest.mark.timeout(60)
def test_pulumi_can_run_the_provider_where_this_project_is_unknown(tmp_path: Path) -> None:
    ran = subprocess.run(
        [sys.executable, "-I", "-c", AWAY],
        input=serialize_provider(key_pair_provider()),
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.startswith("ssh-ed25519 ")


def test_the_stored_provider_is_the_same_each_time() -> None:
    assert serialize_provider(key_pair_provider()) == serialize_provider(key_pair_provider())
