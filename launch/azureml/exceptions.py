"""What the v1 classes raise: azureml-core's names, within the project's own error tree."""

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
    """What all of these have in common, for scripts that catch it."""

    def __str__(self) -> str:
        """The text, in which ranks may have had a say, as a terminal may get it: Python prints what nobody
        catches."""
        return for_terminal(super().__str__())

    @property
    def message(self) -> str:
        """The whole text."""
        return str(self)


class UserErrorException(AzureMLException, InputError):
    """Something the script gave is wrong; nothing was started."""


class RunConfigurationException(AzureMLException, InputError):
    """A configuration was given what it cannot take."""


class ComputeTargetException(AzureMLException):
    """Never raised: which stack a name stands for is settled when a run is submitted."""


class ExperimentExecutionException(AzureMLException, GiveUpError):
    """A command on the cluster did not work; the text is its own."""


class ActivityFailedException(AzureMLException, JobFailed):
    """The run failed; the text ends with the last lines of the first rank that did."""

    def __init__(
        self, job: str, state: str, exit_status: int, reason: str, last_lines: tuple[str, ...] = ()
    ) -> None:
        self.last_lines = last_lines
        self.error_details = "\n".join([reason, *(f"  {line}" for line in last_lines)])
        super().__init__(job, state, exit_status, self.error_details)


class NotSupported(AzureMLException, NotImplementedError):
    """Azure ML has it, Ranklift does not."""

    def __init__(self, what: str, remedy: str) -> None:
        self.what, self.remedy = what, remedy
        super().__init__(f"{what} is not offered by Ranklift: {remedy}")
