"""What NCCL's RAS answers is read from each version that has one."""

from __future__ import annotations

import json
import socket
import time

import pytest

from launch.remote.debug.nccl_ras import NoRas, RasError, ask_ras, parse_json, parse_text
from tests.launch.remote.debug.ras_servers import HUNG_2_24, json_2_28_7, json_2_28_9, ras_server

BEHIND = {
    "group": "0x4e0104c2022fa2f9",
    "rank": 2,
    "host": "10.0.0.5",
    "pid": 102,
    "operations": 102,
    "state": "running",
}
MISSING = {**BEHIND, "rank": 3, "pid": 103, "operations": -1, "state": "does not answer"}


def test_version_2_24_is_asked_for_text() -> None:
    with ras_server(text=HUNG_2_24) as address:
        found = ask_ras(address, 5)
    assert found == [
        {
            "group": "aa11bb22cc33dd44",
            "rank": 5,
            "host": "10.0.0.5",
            "pid": 412,
            "operations": -1,
            "state": "does not answer",
        },
        {
            "group": "78db921d1c117b4a",
            "rank": 7,
            "host": "10.0.0.5",
            "pid": 414,
            "operations": 60,
            "state": "mismatch",
        },
    ]


@pytest.mark.parametrize("version", [json_2_28_7, json_2_28_9])
def test_json_is_read_with_and_without_the_comma(version: object) -> None:
    with ras_server(text=HUNG_2_24, as_json=version()) as address:  # type: ignore[operator]
        found = ask_ras(address, 5)
    assert [one["rank"] for one in found] == [3, 0, 1, 2]
    assert (found[0], found[-1]) == (MISSING, BEHIND)


def test_only_that_comma_may_be_missing() -> None:
    text = json_2_28_7().replace('"host": "10.0.0.5",', '"host": "10.0.0.5"')
    with pytest.raises(RasError, match="not JSON"):
        parse_json(text)


def test_a_rank_that_is_dead_is_named_so() -> None:
    assert parse_json(json_2_28_7(dead=True))[0]["state"] == "dead"


def test_ranks_without_any_operation_are_read_from_text() -> None:
    text = (
        "#0-0 (78db) MISMATCH\n  Rank 3 has not launched any operations -- [process information not found]\n"
    )
    (found,) = parse_text(text)
    assert (found["rank"], found["operations"], found["pid"]) == (3, 0, -1)


@pytest.mark.parametrize(
    "rubbish", ["", "{", "[]", '{"communicators": 3}', '{"communicators": [{"ranks": 1}]}']
)
def test_rubbish_is_an_error(rubbish: str) -> None:
    with pytest.raises(RasError):
        parse_json(rubbish)


def test_where_nothing_listens_there_is_no_ras() -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    with pytest.raises(NoRas):
        ask_ras(f"127.0.0.1:{port}", 2)


@pytest.mark.parametrize("address", ["", "nowhere", "host:", "127.0.0.1:x", "127.0.0.1:99999"])
def test_a_wrong_address_is_named(address: str) -> None:
    with pytest.raises(RasError):
        ask_ras(address, 1)


def test_another_service_is_not_taken_for_it() -> None:
    def respond(connection: socket.socket) -> None:
        with connection:
            connection.recv(100)
            connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

    with ras_server(respond=respond) as address, pytest.raises(RasError, match="HTTP"):
        ask_ras(address, 2)


def test_a_server_that_says_nothing_costs_its_time_alone() -> None:
    held: list[socket.socket] = []
    begun = time.monotonic()
    with ras_server(respond=held.append) as address, pytest.raises(RasError):
        ask_ras(address, 0.5)
    assert time.monotonic() - begun < 3
    for connection in held:
        connection.close()


def test_an_endless_answer_is_cut() -> None:
    def respond(connection: socket.socket) -> None:
        with connection:
            connection.recv(100)
            connection.sendall(b"SERVER PROTOCOL 2\n")
            connection.recv(100)
            connection.sendall(b"OK\n")
            connection.recv(100)
            connection.sendall(b"OK\n")
            connection.recv(100)
            try:
                while True:
                    connection.sendall(b"x" * 65536)
            except OSError:
                return

    with ras_server(respond=respond) as address, pytest.raises(RasError, match="not JSON"):
        ask_ras(address, 10)


def _rank(**fields: object) -> dict[str, object]:
    status = dict.fromkeys(("abort_flag", "async_error", "finalize_called", "destroy_flag", "init_state"), 0)
    return {"rank": 0, "host": "h", "pid": 1, "collective_counts": {}, "status": status, **fields}


def _answer(**fields: object) -> str:
    communicator = {"hash": "a", "missing_ranks": [], "ranks": [_rank(**fields)]}
    return json.dumps({"communicators": [communicator]})


@pytest.mark.parametrize(
    "hostile",
    [
        '"missing_ranks": [' * 10_000,
        '"missing_ranks": [' + "\n" * 180_000,
        '"missing_ranks": [' + '"nvml_dev": 1' + " " * 180_000 + "\n]",
        "[" * 4_000_000,
        '{"a":' * 800_000,
        '{"communicators": ' + "9" * 4_000_000 + "}",
        '{"communicators": NaN}',
        _answer(collective_counts={"AllReduce": 1e999}),
        _answer(collective_counts={"AllReduce": 10**30}),
        _answer(rank=10**30),
        _answer(rank=True),
        _answer(rank=-2),
        _answer(pid=False),
        _answer(collective_counts={"AllReduce": True}),
        _answer(collective_counts={str(number): -99999999999999999 for number in range(200)}),
        _answer(pid="7" * 5000),
        _answer(host=[["x"] * 1000] * 1000),
    ],
    ids=lambda text: text[:40],
)
def test_a_hostile_answer_is_an_error_within_a_second(hostile: str) -> None:
    begun = time.process_time()
    with pytest.raises(RasError) as error:
        parse_json(hostile)
    assert time.process_time() - begun < 1
    assert len(str(error.value)) < 400


@pytest.mark.parametrize(
    "hostile",
    [
        " " * 180_000,
        "#0-0 (a) B\n" + "  Rank 1 " + "process 1" * 20_000,
        "#0-0 (a) B\n" + "  Rank 1 process " + "1" * 180_000,
        "#0-0 (a) B\n" + "  Rank 1 " + "up to operation " * 11_000,
        "#" + "1" * 180_000,
        "#0-0 (a) B\n" + f"  Rank 1 up to operation {'9' * 90_000} process 1 on node {'h' * 90_000}\n" * 20,
    ],
    ids=lambda text: text[:40],
)
def test_a_hostile_text_is_read_within_a_second_as_short_fields(hostile: str) -> None:
    begun = time.process_time()
    found = parse_text(hostile)
    assert time.process_time() - begun < 1
    assert all(len(json.dumps(one)) < 400 for one in found)


def test_texts_of_an_answer_are_printable() -> None:
    status = {**_rank()["status"], "async_error": "\x1b[2J"}  # type: ignore[dict-item]
    (found,) = parse_json(_answer(status=status, host="\x9b\ud800h"))
    assert (found["state"], found["host"]) == ("error ?[2J", "??h")


def test_counts_that_together_are_too_large_for_a_report_are_cut() -> None:
    (found,) = parse_json(_answer(collective_counts={str(number): 10**18 - 1 for number in range(200)}))
    assert found["operations"] == 10**18


def test_long_texts_of_an_answer_are_cut() -> None:
    status = {**_rank()["status"], "async_error": "x" * 180_000}  # type: ignore[dict-item]
    (found,) = parse_json(_answer(status=status, host="h" * 180_000))
    assert len(json.dumps(found)) < 400


def test_a_name_that_takes_long_to_resolve_costs_its_time_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_: time.sleep(60))
    begun = time.monotonic()
    with pytest.raises(RasError, match="'node:28028': reading it took longer"):
        ask_ras("node:28028", 0.5)
    assert time.monotonic() - begun < 5
