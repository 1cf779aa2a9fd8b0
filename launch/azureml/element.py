"""The base of the v1 classes: unknown attributes are refused, not created."""

from __future__ import annotations

from typing import Any

from launch.azureml.missing import absent

__all__ = ["Element"]


class _Named(type):
    """The metaclass, for missing attributes of the class itself, such as ``Environment.list``."""

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(f"type object {cls.__name__!r} has no attribute {name!r}")
        raise absent(cls._known_as or cls.__name__, name)


class Element(metaclass=_Named):
    """A base that refuses misspelt attributes, as in azureml-core, and names those that Ranklift lacks.

    A class sets ``_complete`` at the end of its constructor.
    """

    _complete = False
    _known_as = ""
    """The class's name in :data:`~launch.azureml.missing.MISSING`; empty: its own name."""

    def __setattr__(self, name: str, value: Any) -> None:
        if self._complete:
            getattr(self, name)
        super().__setattr__(name, value)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(f"{type(self).__name__} has no attribute {name!r}")
        raise absent(self._known_as or type(self).__name__, name)
