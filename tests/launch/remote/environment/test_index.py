"""Where a head gets a package from by itself, and who gets the login of an index."""

from __future__ import annotations

import hashlib
import json
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from launch.remote.environment import index as module
from launch.remote.environment.build import Failed
from launch.remote.environment.index import Index, download

WHEEL = b"a wheel"
LOGIN = "Basic YW5uOnNlY3JldA=="
SHA256 = hashlib.sha256(WHEEL).hexdigest()


class Served:
    """A server on loopback: by path, a content or the address that it redirects to."""

    def __init__(self) -> None:
        self.answers: dict[str, bytes | str] = {}
        self.logins: list[tuple[str, str]] = []
        served = self

        class Handler(BaseHTTPRequestHandler):
            def log_message(self, *words: Any) -> None: ...

            def do_GET(self) -> None:
                served.logins.append((self.path, self.headers.get("Authorization", "")))
                found = served.answers[self.path]
                self.send_response(302 if isinstance(found, str) else 200)
                if isinstance(found, str):
                    self.send_header("Location", found)
                self.end_headers()
                self.wfile.write(b"" if isinstance(found, str) else found)

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.host = f"127.0.0.1:{self.server.server_address[1]}"


@pytest.fixture
def servers() -> Iterator[tuple[Served, Served]]:
    both = Served(), Served()
    threads = [threading.Thread(target=one.server.serve_forever, args=(0.02,)) for one in both]
    for thread in threads:
        thread.start()
    yield both
    for one, thread in zip(both, threads, strict=True):
        one.server.shutdown()
        thread.join()
        one.server.server_close()


def test_an_index_gets_its_login_and_the_storage_that_it_redirects_to_does_not(
    servers: tuple[Served, Served],
) -> None:
    index, storage = servers
    index.answers = {
        "/simple/uv/": "/pages/uv/",
        "/pages/uv/": b'<a href="/files/uv.whl">uv.whl</a>',
        "/files/uv.whl": f"http://{storage.host}/blob",
    }
    storage.answers = {"/blob": WHEEL}
    wanted = Index(f"http://ann:secret@{index.host}/simple", (), (), "")
    assert download([wanted], "uv", "uv.whl", SHA256) == WHEEL
    assert index.logins == [("/simple/uv/", LOGIN), ("/pages/uv/", LOGIN), ("/files/uv.whl", LOGIN)]
    assert storage.logins == [("/blob", "")]


def test_an_answer_without_an_end_is_given_up(
    servers: tuple[Served, Served], monkeypatch: pytest.MonkeyPatch
) -> None:
    index, _ = servers
    monkeypatch.setattr(module, "_LARGEST_PAGE", 1000)
    index.answers = {"/simple/uv/": bytes(1001)}
    wanted = Index(f"http://ann:secret@{index.host}/simple", (), (), "")
    with pytest.raises(Failed, match="has more than 1000 bytes") as refused:
        download([wanted], "uv", "uv.whl", SHA256)
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize(
    "link",
    [
        "file:///etc/hostname",
        "http://169.254.169.254/metadata/instance",
        "https://169.254.169.254/uv.whl",
        "https://[::ffff:168.63.129.16]/uv.whl",
        "http://other.test/uv.whl",
        "https://ann:secret@other.test/uv.whl",
        "https://[/uv.whl",
    ],
)
def test_an_index_does_not_lead_to_other_networks(servers: tuple[Served, Served], link: str) -> None:
    index, _ = servers
    index.answers = {"/simple/uv/": json.dumps({"files": [{"filename": "uv.whl", "url": link}]}).encode()}
    wanted = Index(f"http://{index.host}/simple", (), (), "")
    with pytest.raises(Failed, match=f"http://{index.host}/simple: ") as refused:
        download([wanted], "uv", "uv.whl", SHA256)
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize(
    "page",
    [
        b"{",
        b'{"files": 3}',
        b'{"files": [3, {"filename": "uv.whl"}, {"filename": "uv.whl", "url": 3}]}',
        b'{"files": ' + b"[" * 1_000_000,
        b'{"files": ' + b"9" * 1_000_000 + b"}",
        b"href=" * 100_000,
        b'href="' + b"uv.whl" * 100_000,
    ],
    ids=lambda page: page[:30],
)
def test_a_page_of_another_form_is_named(servers: tuple[Served, Served], page: bytes) -> None:
    index, _ = servers
    index.answers = {"/simple/uv/": page}
    begun = time.process_time()
    with pytest.raises(Failed, match=f"http://{index.host}/simple"):
        download([Index(f"http://{index.host}/simple", (), (), "")], "uv", "uv.whl", SHA256)
    assert time.process_time() - begun < 2
