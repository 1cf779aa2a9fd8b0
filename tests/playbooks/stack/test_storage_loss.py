"""The stack's own storage goes with the stack, or with a setting: it is named, and only with consent."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, ClassVar
from unittest.mock import Mock

import pytest
from azure.core.exceptions import HttpResponseError, ResourceNotFoundError

from infra.arm import clients
from launch.errors import InputError, RankliftError
from playbooks.project import Stack
from playbooks.stack.losses import agree_to_delete_storage, storage_that_goes

DEV = Stack("dev", Path(), {})


class TestStorage:
    """The account that goes with the stack is named where it holds anything, or does not show what."""

    @pytest.fixture
    def account(self) -> dict[str, Any]:
        group = "/subscriptions/s-1/resourceGroups/g/providers"
        return {
            "urn": "urn:pulumi:dev::ranklift::x$azure-native:storage:StorageAccount::storage",
            "id": f"{group}/Microsoft.Storage/storageAccounts/mine",
            "type": "azure-native:storage:StorageAccount",
        }

    def asked(self, monkeypatch: pytest.MonkeyPatch, account: dict[str, Any], listed: object) -> str:
        def blobs(**_: object) -> list[str]:
            if isinstance(listed, Exception):
                raise listed
            assert isinstance(listed, list)
            return listed

        service = Mock()
        service.get_container_client.return_value.list_blobs = blobs
        monkeypatch.setattr(clients, "blob_service", lambda *_, **__: service)
        monkeypatch.setattr(Stack, "state", lambda _: {"deployment": {"resources": [account]}})
        return storage_that_goes(DEV)

    @pytest.mark.parametrize(
        ("listed", "named"),
        [
            (["set/0"], "mine"),
            ([], ""),
            (HttpResponseError("AuthorizationPermissionMismatch"), "mine"),
            (ResourceNotFoundError("ContainerNotFound"), ""),
            (InputError("storage", None, "the rehearsal has no blobs", ""), ""),
        ],
    )
    def test_it_is_named_unless_nothing_is_in_it(
        self, monkeypatch: pytest.MonkeyPatch, account: dict[str, Any], listed: object, named: str
    ) -> None:
        assert self.asked(monkeypatch, account, listed) == named

    @pytest.mark.parametrize("kept", ["external", "retainOnDelete"])
    def test_an_account_that_stays_is_none(
        self, monkeypatch: pytest.MonkeyPatch, account: dict[str, Any], kept: str
    ) -> None:
        assert self.asked(monkeypatch, {**account, kept: True}, ["set/0"]) == ""


class TestStorageThatSettingsDelete:
    """An update without a setting deletes the account, as `fab down` does, and has consent first."""

    GROUP = "/subscriptions/s-1/resourceGroups/g/providers"
    ACCOUNT: ClassVar[dict[str, Any]] = {
        "urn": "urn:pulumi:dev::ranklift::x$azure-native:storage:StorageAccount::storage",
        "id": f"{GROUP}/Microsoft.Storage/storageAccounts/mine",
        "type": "azure-native:storage:StorageAccount",
        "outputs": {"location": "southcentralus"},
    }

    def agree(self, monkeypatch: pytest.MonkeyPatch, settings: dict[str, str], *, blobs: bool = True) -> None:
        service = Mock()
        service.get_container_client.return_value.list_blobs = lambda **_: ["set/0"] if blobs else []
        monkeypatch.setattr(clients, "blob_service", lambda *_, **__: service)
        monkeypatch.setattr(Stack, "state", lambda _: {"deployment": {"resources": [self.ACCOUNT]}})
        monkeypatch.setattr(
            Stack, "settings", lambda _: {f"ranklift:{name}": value for name, value in settings.items()}
        )
        monkeypatch.setattr(sys.stdin, "isatty", lambda: False)
        agree_to_delete_storage(DEV, yes=False)

    @pytest.mark.parametrize(
        ("settings", "why"),
        [
            ({"location": "southcentralus"}, "storage is not set any more"),
            ({"storage": "none"}, "storage is not set any more"),
            ({"storage": "serviceEndpoint", "storageAccountId": "/x"}, "storageAccountId names another"),
            ({"storage": "serviceEndpoint", "location": "eastus"}, "location changes to eastus"),
        ],
    )
    def test_without_consent_nothing_is_updated(
        self,
        monkeypatch: pytest.MonkeyPatch,
        capsys: pytest.CaptureFixture[str],
        settings: dict[str, str],
        why: str,
    ) -> None:
        with pytest.raises(RankliftError, match="stack dev is not updated: storage account mine may hold"):
            self.agree(monkeypatch, settings)
        assert f"storage account mine is deleted with its data and results, as ranklift:{why}: " in (
            capsys.readouterr().err
        )
        self.agree(monkeypatch, settings, blobs=False)

    def test_settings_that_keep_it_ask_nothing(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.agree(monkeypatch, {"storage": "privateEndpoint", "location": "South Central US"})
