"""What the running program's stack exported last, read while Pulumi's engine may write it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pulumi
import pytest

from infra import former_outputs as module
from infra.former_outputs import former_outputs

BEING_WRITTEN = "invoke of pulumi:pulumi:readStackOutputs failed: failed to load checkpoint: EOF"


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Pulumi's answers, the next first; an exception is raised."""
    left: list[Any] = []

    def invoke(function: str, arguments: dict[str, str]) -> Any:
        assert (function, arguments) == ("pulumi:pulumi:readStackOutputs", {"name": "org/ranklift/dev"})
        answer = left.pop(0) if len(left) > 1 else left[0]
        if isinstance(answer, Exception):
            raise answer
        return SimpleNamespace(value=answer)

    for name, value in (("organization", "org"), ("project", "ranklift"), ("stack", "dev")):
        monkeypatch.setattr(pulumi, f"get_{name}", lambda value=value: value)
    monkeypatch.setattr(pulumi.runtime, "invoke", invoke)
    monkeypatch.setattr(module, "_PAUSE_S", 0.0)
    return left


@pytest.mark.parametrize("answer", [None, {}, {"outputs": None}])
def test_a_stack_that_was_never_complete_has_none(answers: list[Any], answer: Any) -> None:
    answers.append(answer)
    assert former_outputs() == {}


def test_a_state_that_is_being_written_is_read_again(answers: list[Any]) -> None:
    answers += [Exception(BEING_WRITTEN), Exception(BEING_WRITTEN), {"outputs": {"nodeCount": 4}}]
    assert former_outputs() == {"nodeCount": 4}


def test_a_state_that_stays_unreadable_is_an_error(
    answers: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_LIMIT_S", 0.0)
    answers.append(Exception(BEING_WRITTEN))
    with pytest.raises(Exception, match="failed to load checkpoint"):
        former_outputs()


def test_any_other_error_is_raised_at_once(answers: list[Any]) -> None:
    answers += [Exception("no access"), {"outputs": {}}]
    with pytest.raises(Exception, match="no access"):
        former_outputs()
