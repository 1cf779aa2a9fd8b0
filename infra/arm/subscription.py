"""The subscription of a stack's resources, found where Pulumi's provider finds it."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping
from pathlib import Path

from infra.arm import clients
from infra.arm.rest import Send, management
from infra.arm.types import api_version
from launch.errors import InputError

__all__ = ["KEY", "VARIABLE", "subscription_of"]

KEY = "azure-native:subscriptionId"
VARIABLE = "ARM_SUBSCRIPTION_ID"
_AZ_S = 20.0


def subscription_of(setting: object, environment: Mapping[str, str], send: Send | None = None) -> str:
    """Return the stack's own setting, else ``ARM_SUBSCRIPTION_ID``, else what ``az account set`` chose; in a
    rehearsal its only one.

    Raises :class:`~launch.errors.InputError` if none is chosen.
    """
    if clients.endpoint(environment) is not None:
        version = api_version("Microsoft.Resources/subscriptions")
        for found in management(environment, send).pages("/subscriptions", **{"api-version": version}):
            return str(found["subscriptionId"])
        remedy = "assign its service principal one"
        raise InputError("subscription", None, "the signed-in identity has no role in it", remedy)
    if isinstance(setting, Mapping):
        remedy = f"`fab config set {KEY} ID`, without --secret: it is an id, not a credential"
        raise InputError(KEY, None, "is encrypted", remedy)
    named = setting or environment.get(VARIABLE) or _from_cli(environment)
    if not named:
        remedy = f"run `az login`, set {VARIABLE}, or `fab config set {KEY} …`"
        raise InputError("subscription", None, "none is chosen", remedy)
    return str(named)


def _from_cli(environment: Mapping[str, str]) -> str | None:
    """Return the CLI's subscription; ``None`` without the program or a sign-in."""
    try:
        shown = subprocess.run(
            ["az", "account", "show", "--output", "json"],
            env=dict(environment),
            cwd=Path.home(),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_AZ_S,
            check=False,
        )
        return str(json.loads(shown.stdout)["id"]) if shown.returncode == 0 else None
    except (OSError, subprocess.TimeoutExpired, ValueError, KeyError):
        return None
