"""What scripts use of Azure ML on their own machine: logins, the notebook's widget, telemetry."""

from __future__ import annotations

from typing import Any

from launch.azureml.missing import Element
from launch.azureml.notices import report

__all__ = [
    "AzureCliAuthentication",
    "InteractiveLoginAuthentication",
    "MsiAuthentication",
    "RunDetails",
    "ServicePrincipalAuthentication",
    "set_diagnostics_collection",
]


class _Authentication(Element):
    """A login of Azure ML's, which nothing here uses."""

    _known_as = "Authentication"

    def __init__(self, *_: Any, **__: Any) -> None:
        report(["authentication has no effect: fab uses your ssh key and the login of the Azure CLI"])
        self._complete = True


class AzureCliAuthentication(_Authentication):
    """The Azure CLI's login."""


class InteractiveLoginAuthentication(_Authentication):
    """A login in the browser."""


class MsiAuthentication(_Authentication):
    """A managed identity."""


class ServicePrincipalAuthentication(_Authentication):
    """A service principal, whose secret is dropped."""


class RunDetails(Element):
    """The widget that shows a run in a notebook."""

    def __init__(self, run_instance: Any) -> None:
        self._run = run_instance
        self._complete = True

    def show(self, *_: Any, **__: Any) -> None:
        """Name the command that shows the run."""
        report([f"RunDetails shows no widget: `{self._run.get_portal_url()}` prints what the run does"])


def set_diagnostics_collection(*_: Any, **__: Any) -> None:
    """Do nothing: nothing is collected."""
