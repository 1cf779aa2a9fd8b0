"""Questions to Azure: pages, patience, whom a token is shown to."""

from __future__ import annotations

import http.server
import json
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from infra.arm.errors import AzureRefused, MissingRight, NotSignedIn, Throttled
from infra.arm.rest import Answer, Rest, management, retail_prices
from launch.errors import RetryError
from tests.infra.azure_answers import error, forbidden, rehearsed


class Line:
    """Gives one answer after the other and notes what was asked and how long was waited."""

    def __init__(self, *answers: Answer | OSError) -> None:
        self.answers, self.asked, self.waited = (
            list(answers),
            list[tuple[str, Mapping[str, str]]](),
            list[float](),
        )

    def __call__(self, url: str, headers: Mapping[str, str]) -> Answer:
        self.asked.append((url, headers))
        answer = self.answers.pop(0)
        if isinstance(answer, OSError):
            raise answer
        return answer

    def rest(self, base: str = "https://management.azure.com") -> Rest:
        return Rest(base, lambda: "secret", self, self.waited.append)


def page(*entries: str, link: str | None = None, key: str = "value", link_key: str = "nextLink") -> Answer:
    return Answer(200, json.dumps({key: list(entries), link_key: link}).encode())


def test_a_filter_reaches_azure_as_its_examples_show_it() -> None:
    line = Line(page())
    list(line.rest().pages("/skus", **{"api-version": "2021-07-01", "$filter": "location eq 'westus'"}))
    ((url, headers),) = line.asked
    assert url == "https://management.azure.com/skus?api-version=2021-07-01&$filter=location%20eq%20'westus'"
    assert headers["Authorization"] == "Bearer secret"


@pytest.mark.parametrize(
    "link",
    ["https://prices.azure.com:443/api?$skip=1", "https://prices.azure.com/api?$skip=1", "/api?$skip=1"],
)
def test_a_list_goes_on_to_its_last_page(link: str) -> None:
    line = Line(page("a", link=link, key="Items", link_key="NextPageLink"), page("b", key="Items"))
    assert list(line.rest("https://prices.azure.com").pages("/api")) == ["a", "b"]


@pytest.mark.parametrize(
    "link", ["https://evil.example/x", "http://management.azure.com/x", "https://management.azure.com:8443/x"]
)
def test_a_next_page_elsewhere_gets_no_token(link: str) -> None:
    line = Line(page("a", link=link))
    with pytest.raises(AzureRefused, match="not followed"):
        list(line.rest().pages("/x"))
    assert len(line.asked) == 1


def test_a_list_without_an_end_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("infra.arm.rest.PAGES", 3)
    line = Line(*[page("a", link="/x")] * 4)
    with pytest.raises(AzureRefused, match="more than 3 pages"):
        list(line.rest().pages("/x"))


def test_azure_gets_the_time_that_it_asks_for() -> None:
    busy = Answer(429, b"{}", {"retry-after": "7"})
    line = Line(busy, Answer(503), ConnectionResetError(), Answer(200, b'{"a": 1}'))
    assert line.rest().get("/x") == {"a": 1}
    assert line.waited == [7.0, 1.0, 0.2]


def test_who_is_asked_to_wait_for_minutes_is_told_so() -> None:
    line = Line(Answer(429, error(429, "TooManyRequests", "slow").body, {"retry-after": "300"}))
    with pytest.raises(
        Throttled, match=r"^Azure throttles: .*; wait 300 s, .*\nTooManyRequests: slow$"
    ) as raised:
        line.rest().get("/x")
    assert isinstance(raised.value, RetryError)
    assert line.waited == []


def test_nobody_there_is_said_with_the_name_that_was_asked() -> None:
    line = Line(*[OSError(113, "No route to host")] * 4)
    with pytest.raises(AzureRefused, match=r"prices\.azure\.com does not answer: No route to host"):
        line.rest("https://prices.azure.com").get("/x")


@pytest.mark.parametrize("body", [b"<html>", b"[]", b""])
def test_what_is_no_json_is_no_answer(body: bytes) -> None:
    line = Line(Answer(200, body or b"nothing"))
    with pytest.raises(AzureRefused, match="did not answer in JSON at /x"):
        line.rest().get("/x")


def test_an_expired_sign_in_is_one_line_with_the_remedy() -> None:
    line = Line(error(401, "ExpiredAuthenticationToken", "The access token expiry UTC time is earlier."))
    with pytest.raises(NotSignedIn) as raised:
        line.rest().get("/x")
    assert str(raised.value) == "the sign-in to Azure has expired; run `az login`"


def test_a_missing_right_is_named() -> None:
    line = Line(forbidden("Microsoft.Compute/locations/usages/read"))
    with pytest.raises(MissingRight) as raised:
        line.rest().get("/x")
    assert raised.value.action == "Microsoft.Compute/locations/usages/read"
    assert "lacks the right Microsoft.Compute/locations/usages/read on /subscriptions/0" in str(raised.value)
    assert len(str(raised.value).splitlines()) == 1


def test_a_rehearsal_is_both_and_gets_its_own_token(tmp_path: Path) -> None:
    environment = rehearsed("http://127.0.0.1:81", tmp_path)
    for ask in (management, retail_prices):
        line = Line(page())
        list(ask(environment, line).pages("/x"))
        ((url, headers),) = line.asked
        assert url == "http://127.0.0.1:81/x"
        assert headers["Authorization"] == "Bearer the operator's token"


def test_without_a_rehearsal_azures_two_addresses_are_asked() -> None:
    assert management({}).base == "https://management.azure.com"
    assert retail_prices({}).base == "https://prices.azure.com"
    assert management({}).token is not None
    assert retail_prices({}).token is None


@pytest.fixture
def server() -> Iterator[str]:
    """One that answers, redirects, refuses and breaks off."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if self.path == "/away":
                self.send_response(302)
                self.send_header("Location", "/fine")
                self.end_headers()
            elif self.path == "/half":
                self.send_response(200)
                self.send_header("Content-Length", "100")
                self.end_headers()
                self.wfile.write(b"{")
            else:
                self.send_response(200 if self.path == "/fine" else 404)
                self.end_headers()
                self.wfile.write(b'{"fine": true}')

        def log_message(self, *_: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as running:
        thread = threading.Thread(target=running.serve_forever, args=(0.01,))
        thread.start()
        yield f"http://127.0.0.1:{running.server_port}"
        running.shutdown()
        thread.join()


def test_over_a_real_connection(server: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")  # nobody listens there
    rest = Rest(server, sleep=lambda _: None)
    assert rest.get("/fine") == {"fine": True}
    with pytest.raises(AzureRefused) as raised:
        rest.get("/nothing")
    assert raised.value.status == 404
    with pytest.raises(AzureRefused) as raised:
        rest.get("/away")
    assert raised.value.status == 302
    with pytest.raises(AzureRefused, match="the answer broke off"):
        rest.get("/half")
