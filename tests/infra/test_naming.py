"""Names of a stack's resources."""

import re

import pytest

from infra.naming import cluster_name


@pytest.mark.parametrize(
    "stack", ["dev", "a", "Dev", "my_stack", "x" * 100, "---", "v1.2", "_", "a" * 33 + "-" + "b" * 20]
)
def test_azure_takes_every_name(stack: str) -> None:
    name = f"{cluster_name(stack)}-vnet"
    assert re.fullmatch(r"[a-z][a-z0-9-]*[a-z0-9]", name)
    assert len(name) <= 64


def test_no_two_stacks_share_a_name() -> None:
    stacks = [
        "dev",
        "Dev",
        "DEV",
        "dev-",
        "dev_",
        "my_stack",
        "my-stack",
        "my.stack",
        "x" * 99,
        "x" * 100,
        "-",
        "_",
    ]
    assert len({cluster_name(stack) for stack in stacks}) == len(stacks)
