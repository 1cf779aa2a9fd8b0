"""Errors of the v1 classes: azureml-core's names within the project's own error tree."""

from __future__ import annotations

from launch.errors import GiveUpError, InputError, JobFailed, RankliftError
from launch.printable import for_terminal

__all__ = [
    "ActivityFailedException",
    "AzureMLException",
    "ComputeTargetException",
    "ExperimentExecutionException",
    "NotSupported",
    "RunConfigurationException",
    "UserErrorException",
]


class AzureMLException(RankliftError):
    """The base of all these errors, for scripts that catch it."""

    def __str__(self) -> str:
        """Return the text made safe for a terminal: it may hold ranks' output, and Python prints uncaught
        errors."""
        return for_terminal(super().__str__())

    @property
    def message(self) -> str:
        """The whole text."""
        return str(self)


class UserErrorException(AzureMLException, InputError):
    """An input of the script is wrong; nothing was started."""


class RunConfigurationException(AzureMLException, InputError):
    """A configuration got a wrong value."""


class ComputeTargetException(AzureMLException):
    """Never raised: a target's name is resolved to a stack when a run is submitted."""


class ExperimentExecutionException(AzureMLException, GiveUpError):
    """A command on the cluster failed; the text is the command's."""


class ActivityFailedException(AzureMLException, JobFailed):
    """The run failed; the text ends with the last lines of the first rank that failed."""

    def __init__(
        self, job: str, state: str, exit_status: int, reason: str, last_lines: tuple[str, ...] = ()
    ) -> None:
        self.last_lines = last_lines
        self.error_details = "\n".join([reason, *(f"  {line}" for line in last_lines)])
        super().__init__(job, state, exit_status, self.error_details)


class NotSupported(AzureMLException, NotImplementedError):
    """A feature that Azure ML has and Ranklift lacks."""

    def __init__(self, what: str, remedy: str) -> None:
        self.what, self.remedy = what, remedy
        super().__init__(f"{what} is not offered by Ranklift: {remedy}")
