"""A node that answers."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.playbooks.server import SshServer


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SshServer]:
    with SshServer(tmp_path_factory.mktemp("sshd")) as running:
        yield running
