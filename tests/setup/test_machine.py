"""What of this machine a bare root is given: how registries are reached, and nothing else."""

from __future__ import annotations

import pytest

from tests.setup.machine import BUNDLE, environment, host_files


def test_settings_of_the_package_managers_are_passed_on_and_no_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    passed = {
        "PIP_INDEX_URL": "a",
        "npm_config_strict_ssl": "b",
        "https_proxy": "c",
        "GOPROXY": "d",
        "UV_DEFAULT_INDEX": "e",
    }
    kept = {
        "GOOGLE_APPLICATION_CREDENTIALS": "/key",
        "GOPATH": "/go",
        "PIP_FIND_LINKS": "/wheels",
        "AWS_PROFILE": "x",
    }
    for name, value in (passed | kept).items():
        monkeypatch.setenv(name, value)
    assert passed.items() <= environment().items()
    assert not kept.keys() & environment().keys()


def test_the_certificates_that_the_set_up_installs_are_not_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(BUNDLE))
    assert str(BUNDLE).lstrip("/") not in host_files()
