"""The guard around every test."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.rehearsal.node_lab import outside_address


@pytest.mark.parametrize("name", ["HOME", "PULUMI_HOME", "AZURE_CONFIG_DIR"])
def test_the_developers_own_settings_are_out_of_sight(
    name: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    assert Path(os.environ[name]).is_relative_to(tmp_path_factory.getbasetemp())


def test_no_connection_leaves_this_machine() -> None:
    with socket.socket() as outside, pytest.raises(AssertionError, match=r"192\.0\.2\.1"):
        outside.connect(("192.0.2.1", 80))


@pytest.mark.parametrize("address", [lambda: "127.0.0.1", outside_address])
def test_this_machine_may_be_reached(address: Callable[[], str]) -> None:
    with socket.create_server((address(), 0)) as server:
        socket.create_connection(server.getsockname()).close()
