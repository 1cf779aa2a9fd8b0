"""What holds for every test: a home of its own, no way off this machine, the project's commands on PATH."""

from __future__ import annotations

import ipaddress
import os
import signal
import socket
import sys
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import hypothesis
import pytest

from tests.coverage_files import remove_torn

PREFIXES = ("AZURE_", "ARM_", "PULUMI_", "RANKLIFT_", "XDG_", "SSH_", "GIT_", "FABRIC_", "INVOKE_", "OMPI_")
"""Variables of the developer's own shell that would change what a test sees."""


# A suite that was started in the background of a shell without job control ignores Ctrl-C, and under nohup
# SIGHUP; so would all that its tests start and interrupt.
for _number, _handler in ((signal.SIGINT, signal.default_int_handler), (signal.SIGHUP, signal.SIG_DFL)):
    if signal.getsignal(_number) is signal.SIG_IGN:
        signal.signal(_number, _handler)

# How long an example takes says how busy the machine is, not whether the code is right.
hypothesis.settings.register_profile("ranklift", deadline=None)
hypothesis.settings.load_profile("ranklift")


@pytest.hookimpl(wrapper=True, trylast=True)
def pytest_runtestloop(session: pytest.Session) -> Generator[None, object, object]:
    """Runs inside the coverage plugin's own, which combines once all tests have run."""
    result = yield
    if session.config.pluginmanager.hasplugin("_cov") and not hasattr(session.config, "workerinput"):
        remove_torn(session.config.rootpath / ".coverage")
    return result


@pytest.fixture(autouse=True, scope="session")
def _own_home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Tests never read or write the developer's ~/.ssh, ~/.azure, ~/.pulumi or git settings."""
    home = tmp_path_factory.mktemp("home")
    with pytest.MonkeyPatch.context() as patch:
        for name in os.environ:
            if name.startswith(PREFIXES):
                patch.delenv(name)
        patch.setenv("HOME", str(home))
        patch.setenv("PULUMI_HOME", str(home / ".pulumi"))
        patch.setenv("PULUMI_SKIP_UPDATE_CHECK", "1")
        patch.setenv("AZURE_CONFIG_DIR", str(home / ".azure"))
        patch.setenv("GIT_CONFIG_GLOBAL", os.devnull)
        patch.setenv("GIT_CONFIG_SYSTEM", os.devnull)
        for who in ("AUTHOR", "COMMITTER"):
            patch.setenv(f"GIT_{who}_NAME", "Test")
            patch.setenv(f"GIT_{who}_EMAIL", "test@example.invalid")
        patch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
        yield home


@pytest.fixture(autouse=True, scope="session")
def _no_network() -> Iterator[None]:
    """A connection that would leave this machine fails the test that tries it."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("connect", "connect_ex"):
            patch.setattr(socket.socket, name, _guarded(getattr(socket.socket, name)))
        yield


def _guarded(connect: Any) -> Any:
    def guarded(self: socket.socket, address: Any) -> Any:
        if self.family in (socket.AF_INET, socket.AF_INET6) and not _is_local(address[0]):
            raise AssertionError(f"a test tried to reach {address[0]}")
        return connect(self, address)

    return guarded


def _is_local(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return False
    return address.is_loopback or _is_own(address)


def _is_own(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> bool:
    """Whether an interface of this machine has the address: no other can be bound."""
    family = socket.AF_INET if address.version == 4 else socket.AF_INET6
    with socket.socket(family) as probe:
        try:
            probe.bind((str(address), 0))
        except OSError:
            return False
    return not address.is_multicast
