"""How long commands wait for nodes by default: longer where nodes install their drivers at the first boot."""

from __future__ import annotations

from playbooks.cli.task import seconds
from playbooks.project import Stack

__all__ = ["CHANGE", "LIMIT_HELP", "RECIPE_S", "WAIT", "ready_limit"]

CHANGE = "30m"
"""For Azure's work and the boot of nodes whose image has the drivers."""
WAIT = "10m"
"""For the boot alone."""
RECIPE_S = 90 * 60.0
"""More for the recipe of plain Ubuntu: kernel modules built by DKMS, driver, CUDA. It is what Azure by itself
gives its extensions that install the same drivers on a scale set (``extensionsTimeBudget``: PT1H30M)."""
_IMAGE = "ranklift:image"
LIMIT_HELP = (
    "give up after this many seconds (default: {0}; plain Ubuntu, which installs drivers, 90m more); "
    "90s, 10m and 2h are accepted too"
)


def ready_limit(stack: Stack, given: str | None, usual: str) -> float:
    """Return the seconds within which nodes have to be ready; ``given`` is the user's ``--timeout``.

    Raises :class:`~launch.errors.InputError` for a time that is none, and for an image that is none.
    """
    if given is not None:
        return seconds("--timeout", given)
    image = stack.settings().get(_IMAGE)
    if not image:  # a size's own image has its drivers
        return seconds("--timeout", usual)
    from infra.config.bare_image import names_plain

    return seconds("--timeout", usual) + (RECIPE_S if names_plain(str(image)) else 0.0)
