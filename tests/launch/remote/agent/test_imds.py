"""The metadata service's answers, and what is made of those that it should not give."""

from __future__ import annotations

import socket
import threading
from typing import Any

import pytest

from launch.remote.agent.imds import ask, events, identity, parse, settings
from tests.launch.remote.metadata_service import event


class TestEvents:
    def test_those_that_take_the_vm_are_found(self) -> None:
        listed = [
            event("nodes_1", "Preempt", NotBefore="Mon, 19 Sep 2016 18:29:47 GMT"),
            event("nodes_1", "Terminate", EventSource="User", Resources=["nodes_1", "nodes_2"]),
            event("nodes_1", "Reboot", EventStatus="Started", NotBefore=""),
            event("nodes_1", "Freeze"),
            event("nodes_2", "Preempt"),
            event("nodes_10", "Preempt"),
        ]
        found, odd = events({"DocumentIncarnation": 2, "Events": listed}, "nodes_1")
        assert odd == []
        assert [(one.kind, one.alone, one.by_user) for one in found] == [
            ("Preempt", True, False), ("Terminate", False, True), ("Reboot", True, False),
        ]  # fmt: skip
        assert [one.not_before for one in found if one.kind != "Terminate"] == [1474309787, None]

    @pytest.mark.parametrize(
        "document",
        [None, [], "x", {}, {"Events": None}, {"Events": {"a": 1}}],
    )
    def test_a_document_without_events_is_named(self, document: Any) -> None:
        assert events(document, "nodes_1") == ([], ["the metadata service returned no list of Events"])

    @pytest.mark.parametrize(
        "strange",
        [
            "x",
            None,
            {},
            {"EventType": "Explode", "Resources": ["nodes_1"]},
            event("nodes_1", EventType=["Preempt"]),
            event("nodes_1", Resources="nodes_1"),
            event("nodes_1", EventId=7),
            event("nodes_1", NotBefore="soon"),
            event("nodes_1", NotBefore=None),
        ],
    )
    def test_one_that_is_not_understood_is_none_and_hides_no_other(self, strange: Any) -> None:
        found, odd = events({"Events": [strange, event("nodes_1", "Reboot")]}, "nodes_1")
        assert bool(odd) is not (isinstance(strange, dict) and strange.get("EventType") == "Explode")
        assert [one.kind for one in found] == ["Reboot"]

    def test_what_is_odd_about_one_of_this_vms_is_said(self) -> None:
        _, odd = events({"Events": [event("nodes_1", NotBefore="soon")]}, "nodes_1")
        assert odd == ["Preempt event Preempt-nodes_1: NotBefore is 'soon'"]


class TestTags:
    def test_fractions_are_spans_too(self) -> None:
        tags = [
            {"name": "ranklift-idle-stop-minutes", "value": "0.5"},
            {"name": "ranklift-ttl-hours", "value": "24"},
        ]
        spans = {"ranklift-idle-stop-minutes": 30.0, "ranklift-ttl-hours": 86400.0}
        assert settings(tags) == (spans, [])

    @pytest.mark.parametrize("value", ["", "0", "-1", "nan", "inf", "soon", None, [5]])
    def test_what_is_no_span_is_said_and_nothing_is_done_for_it(self, value: Any) -> None:
        spans, odd = settings([{"name": "ranklift-ttl-hours", "value": value}])
        assert spans == {}
        assert odd == [f"tag ranklift-ttl-hours is {value!r}: ignored"]

    @pytest.mark.parametrize("tags", [None, "a:b", [1], [{}], [{"name": "a", "value": "1"}]])
    def test_others_mean_nothing(self, tags: Any) -> None:
        assert settings(tags) == ({}, [])

    @pytest.mark.parametrize(
        "tags", [None, [], [1], [{"name": "ranklift-identity"}], [{"name": "ranklift-identity", "value": 5}]]
    )
    def test_no_identity_is_named(self, tags: Any) -> None:
        assert identity(tags) == ""


class TestHttp:
    def test_an_answer_is_read_once_it_is_whole(self) -> None:
        whole = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nDATE: x\r\n\r\nhi"
        assert [parse(whole[:cut]) for cut in range(len(whole))] == [None] * len(whole)
        assert parse(whole + b"more") == (200, {"content-length": "2", "date": "x"}, b"hi")

    def test_pieces_are_put_together(self) -> None:
        head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
        body = b"3\r\nabc\r\n2;x=y\r\nde\r\n0\r\n\r\n"
        assert [parse(head + body[:cut]) for cut in range(len(body))] == [None] * len(body)
        answer = parse(head + body)
        assert answer is not None
        assert answer[2] == b"abcde"

    @pytest.mark.parametrize(
        "data", [b"SSH-2.0-x\r\n\r\n", b"HTTP/1.1\r\n\r\n", b"HTTP/1.1 no\r\n\r\n", b"\r\n\r\n"]
    )
    def test_what_is_no_answer_is_an_error(self, data: bytes) -> None:
        with pytest.raises(ValueError, match=r"HTTP|invalid"):
            parse(data)

    @pytest.mark.parametrize(
        "sent", [b"", b"HTTP/1.1 200 OK\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nx"]
    )
    def test_one_that_breaks_off_is_an_error_too(self, sent: bytes) -> None:
        with socket.create_server(("127.0.0.1", 0)) as door:

            def serve() -> None:
                with door.accept()[0] as link:
                    link.recv(1000)
                    link.sendall(sent)

            thread = threading.Thread(target=serve)
            thread.start()
            with pytest.raises(OSError, match="breaks off"):
                ask("GET", f"http://127.0.0.1:{door.getsockname()[1]}", "/", b"", 5)
            thread.join()

    def test_one_that_does_not_come_is_not_waited_for_for_ever(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as door, pytest.raises(OSError, match="timed out"):
            ask("GET", f"http://127.0.0.1:{door.getsockname()[1]}", "/", b"", 0.1)
