"""An emulated login.microsoftonline.com, with tokens for one application by its secret or an assertion."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs

from azure.core.pipeline.transport._requests_basic import RequestsTransport

TENANT, CLIENT = "11111111-2222-4333-8444-555555555555", "66666666-7777-4888-8999-000000000000"
SECRET, ASSERTION = "the application's secret", "a pipeline's own token"
HOST = "https://login.microsoftonline.com"


class ToEndpoint(RequestsTransport):
    """Sends azure-identity's requests, which are https alone, to the emulated endpoint instead."""

    def __init__(self, url: str) -> None:
        super().__init__()
        self._url = url

    def send(self, request: Any, **options: Any) -> Any:
        assert request.url.startswith(f"{HOST}/"), request.url
        request.url = self._url + request.url.removeprefix(HOST)
        return super().send(request, **options)


@contextmanager
def token_endpoint(token: str) -> Iterator[tuple[str, list[dict[str, str]]]]:
    """Serve tokens; yield the address, and the requests for tokens as they come."""
    requests: list[dict[str, str]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if self.path.startswith("/oidc?"):
                fits = self.headers["Authorization"] == "Bearer of this job" and "audience=api" in self.path
                self._answer(200 if fits else 403, {"value": ASSERTION})
                return
            if "/discovery/instance?" in self.path:
                name = HOST.removeprefix("https://")
                known = {"preferred_network": name, "preferred_cache": name, "aliases": [name]}
                self._answer(200, {"metadata": [known]})
                return
            base = f"{HOST}/{TENANT}/oauth2/v2.0"
            self._answer(
                200,
                {
                    "token_endpoint": f"{base}/token",
                    "authorization_endpoint": f"{base}/authorize",
                    "issuer": f"{HOST}/{TENANT}/v2.0",
                },
            )

        def do_POST(self) -> None:
            text = self.rfile.read(int(self.headers["Content-Length"])).decode()
            form = {name: values[0] for name, values in parse_qs(text).items()}
            requests.append(form)
            known = self.path == f"/{TENANT}/oauth2/v2.0/token" and form["client_id"] == CLIENT
            if known and (form.get("client_secret") == SECRET or form.get("client_assertion") == ASSERTION):
                self._answer(200, {"token_type": "Bearer", "expires_in": 3600, "access_token": token})
            else:
                why = "AADSTS7000215: Invalid client secret provided.\r\nTrace ID: 1"
                self._answer(401, {"error": "invalid_client", "error_description": why})

        def _answer(self, status: int, body: dict[str, Any]) -> None:
            data = json.dumps(body).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: object) -> None:
            """Nobody reads it."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", requests
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
