"""Which subscription: the stack's own, the shell's, the command line's, the rehearsal's."""

from __future__ import annotations

from pathlib import Path

import pytest

from infra.arm.subscription import subscription_of
from launch.errors import InputError
from tests.infra.azure_answers import SUBSCRIPTION, Azure, rehearsed


def test_the_stacks_own_setting_comes_first_then_the_variable(tmp_path: Path) -> None:
    shell = {"ARM_SUBSCRIPTION_ID": "from-shell", "PATH": str(tmp_path)}
    assert subscription_of("from-setting", shell) == "from-setting"
    assert subscription_of(None, shell) == subscription_of("", shell) == "from-shell"


def test_without_another_the_one_that_az_has_chosen_counts(tmp_path: Path) -> None:
    shell = {"PATH": str(tmp_path)}
    with pytest.raises(InputError, match="run `az login`"):
        subscription_of(None, shell)
    program = tmp_path / "az"
    program.write_text('#!/bin/sh\necho \'{"id": "from-az"}\'\n')
    program.chmod(0o755)
    assert subscription_of(None, shell) == "from-az"


@pytest.mark.parametrize("script", ["echo run az login >&2; exit 1", "echo nonsense", "echo {}"])
def test_an_az_that_does_not_say_is_none(script: str, tmp_path: Path) -> None:
    program = tmp_path / "az"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    with pytest.raises(InputError, match="none is chosen"):
        subscription_of(None, {"PATH": str(tmp_path)})


def test_in_a_rehearsal_it_is_the_rehearsals_whatever_else_is_said(tmp_path: Path) -> None:
    variables = rehearsed("http://127.0.0.1:1", tmp_path) | {"ARM_SUBSCRIPTION_ID": "real"}
    assert subscription_of("real", variables, Azure()) == SUBSCRIPTION


def test_an_encrypted_setting_is_refused_without_its_ciphertext() -> None:
    with pytest.raises(InputError) as caught:
        subscription_of({"secure": "v1:CIPHER"}, {})
    assert str(caught.value) == (
        "azure-native:subscriptionId: is encrypted; `fab config set azure-native:subscriptionId ID`, "
        "without --secret: it is an id, not a credential"
    )
