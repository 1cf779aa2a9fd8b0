"""The documents in which VMs read what Azure will do to them, and what they may answer."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import pytest

from rehearsal.imds.scheduled_events import FORGOTTEN_S, Event, ScheduledEvents

SET, OTHER = "a scale set", "another"
NODES = ("ranklift-dev_0", "ranklift-dev_1")


@pytest.fixture
def clock() -> SimpleNamespace:
    return SimpleNamespace(now=1_700_000_000.0)


@pytest.fixture
def events(clock: SimpleNamespace) -> ScheduledEvents:
    return ScheduledEvents(lambda: clock.now)


def evict(events: ScheduledEvents, seconds: float = 30.0) -> list[Event]:
    return events.announce(SET, NODES, "Preempt", seconds)


def test_every_vm_has_an_event_of_its_own(events: ScheduledEvents) -> None:
    evict(events)
    result = events.document(SET, "vm")["Events"]
    assert [event["Resources"] for event in result] == [[name] for name in NODES]
    assert len({event["EventId"] for event in result}) == len(NODES)


def test_an_event_is_told_as_azure_tells_it(events: ScheduledEvents) -> None:
    evict(events)
    result = events.document(SET, "vm")["Events"][0]
    assert result | {"EventId": ""} == {
        "EventId": "",
        "EventType": "Preempt",
        "ResourceType": "VirtualMachine",
        "Resources": [NODES[0]],
        "EventStatus": "Scheduled",
        "NotBefore": "Tue, 14 Nov 2023 22:13:50 GMT",
        "Description": "",
        "EventSource": "Platform",
        "DurationInSeconds": -1,
    }


def test_the_incarnation_changes_with_the_document_and_only_then(events: ScheduledEvents) -> None:
    def incarnation() -> int:
        return int(events.document(SET, "vm")["DocumentIncarnation"])

    seen = [incarnation(), incarnation()]
    announced = evict(events)
    seen.append(incarnation())
    events.approve(SET, announced[0].id)
    events.approve(SET, announced[0].id)
    seen.append(incarnation())
    events.end(SET, announced)
    seen.append(incarnation())
    assert seen == [1, 1, 2, 3, 4]


def test_another_scale_set_hears_nothing_of_it(events: ScheduledEvents) -> None:
    (first, _) = evict(events)
    assert events.document(OTHER, "vm") == {"DocumentIncarnation": 1, "Events": []}
    assert not events.approve(OTHER, first.id)


def test_approved_in_any_spelling_an_event_has_begun_and_has_no_time_any_more(
    events: ScheduledEvents,
) -> None:
    (first, _) = evict(events)
    assert events.approve(SET, first.id.lower())
    result = events.document(SET, "vm")["Events"]
    assert [(event["EventStatus"], event["NotBefore"] == "") for event in result] == [
        ("Started", True),
        ("Scheduled", False),
    ]


def test_what_is_not_there_cannot_be_approved(events: ScheduledEvents) -> None:
    announced = evict(events)
    events.end(SET, announced)
    assert not events.approve(SET, announced[0].id)
    assert events.document(SET, "vm")["Events"] == []


def test_a_deletion_need_not_wait_once_every_vm_has_approved(events: ScheduledEvents) -> None:
    announced = events.announce(SET, NODES, "Terminate", 300.0)
    for event in announced:
        events.approve(SET, event.id)
    asyncio.run(asyncio.wait_for(events.until_due(SET, announced), 5))


def test_one_that_does_not_holds_it_up_no_longer_than_the_notice(events: ScheduledEvents) -> None:
    announced = evict(events, seconds=0.05)
    events.approve(SET, announced[0].id)
    asyncio.run(asyncio.wait_for(events.until_due(SET, announced), 5))
    assert [event["EventStatus"] for event in events.document(SET, "vm")["Events"]] == ["Started"] * 2


def test_a_vm_listens_from_its_first_question_until_it_has_not_asked_for_long(
    events: ScheduledEvents, clock: SimpleNamespace
) -> None:
    assert not events.listens("vm")
    events.document(SET, "vm")
    clock.now += FORGOTTEN_S - 1
    assert events.listens("vm")
    assert not events.listens("another vm")
    clock.now += 1
    assert not events.listens("vm")
