"""The end of a whole cluster: who sees to it, when it comes, and what keeps it from coming."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from launch.remote.agent import autostop
from launch.remote.agent.autostop import Nodes, look, members, time_left
from launch.remote.agent.imds import IDLE, TTL
from tests.launch.remote.agent.installed import install_agent
from tests.launch.remote.metadata_service import MetadataService, Reply

SET = "/subscriptions/S/resourceGroups/G/providers/Microsoft.Compute/virtualMachineScaleSets/nodes"
ME = os.uname().nodename


class Others(Nodes):
    """Nodes as the test has them; ``None`` does not answer."""

    def __init__(self, **idle: float | None) -> None:
        self.idle_s, self.asked = idle, list[str]()
        self.leaders = ["node000000", "node000001"]
        """Those whose watch runs and whose last look went well, if they answer."""
        self.ended: list[tuple[list[str], float, str]] = []

    def answers(self, names: list[str]) -> dict[str, dict[str, float]]:
        self.asked += names
        idle = {name: self.idle_s.get(name) for name in names}
        return {
            name: {} if one is None else {"idle_s": one, "leads": name in self.leaders}
            for name, one in idle.items()
        }

    def end_jobs(self, names: list[str], within_s: float, reason: str) -> int:
        self.ended.append((names, within_s, reason))
        return 1


class Azure(MetadataService):
    """The resource manager too, with a scale set that was made ``age`` seconds ago."""

    def __init__(self, *names: str, age: float = 0.0, capacity: int = 3) -> None:
        super().__init__("nodes_0")
        self.listed: Any = [self.vm(number, name) for number, name in enumerate(names)]
        self.made: Any = time.strftime("%Y-%m-%dT%H:%M:%S.1234567+00:00", time.gmtime(time.time() - age))
        self.sku = {"name": "Standard_ND40rs_v2", "tier": "Standard", "capacity": capacity}
        self.arm = self.answer
        self.refusal: Reply | None = None

    @staticmethod
    def vm(number: int, name: str) -> dict[str, Any]:
        return {"instanceId": str(number), "properties": {"osProfile": {"computerName": name}}}

    def answer(self, method: str, path: str, body: Any) -> Reply:
        if method != "GET":
            return self.refusal or (202, {}, b"")
        if path.startswith(f"{SET}/virtualMachines?"):
            half = len(self.listed) // 2
            following = {"nextLink": f"{self.url}{SET}/virtualMachines?page=2&api-version=1"}
            if "page=2" in path:
                return 200, {}, {"value": self.listed[half:]}
            return 200, {}, {"value": self.listed[:half], **(following if half else {})}
        if path.startswith(f"{SET}?"):
            more = {"tags": {"a": "b"}, "properties": {"timeCreated": self.made}, "etag": 'W/"1"'}
            return 200, {}, {"sku": self.sku, **more}
        return 404, {}, {"error": {"code": "NotFound", "message": path}}

    def changes(self) -> list[tuple[str, str, Any]]:
        """What was asked of Azure beyond reading."""
        changed = [one for one in self.asked if one[0] != "GET"]
        return [(method, path.partition("?")[0], body) for method, path, _, body in changed]


@pytest.fixture
def azure() -> Iterator[Azure]:
    found = Azure("node000000", "node000001", "node000002")
    yield found
    found.close()


def lead_request(azure: Azure, number: int = 0, idle: float = 1000.0, **spans: float) -> dict[str, Any]:
    """What the watch of VM ``number`` reports; spans by ``ttl`` and ``idle_stop``, in seconds."""
    names = {"ttl": TTL, "idle_stop": IDLE}
    compute = {**azure.compute(), "name": f"nodes_{number}"}
    return {
        "compute": compute,
        "imds": azure.url,
        "idle_s": idle,
        "memory": {},
        "spans": {names[name]: span for name, span in spans.items()},
    }


def warned(azure: Azure) -> dict[str, Any]:
    """What the watch reports after a look that has warned the jobs of the end of an hour's life."""
    return {**lead_request(azure, ttl=3600.0), "memory": {"warned": time.monotonic() - 61}}


class TestWhoLeads:
    def test_the_lowest_asks_nobody_whether_to(self, azure: Azure) -> None:
        others = Others()
        look(lead_request(azure, 0, ttl=86400.0), others)
        assert others.asked == []
        assert any(path.startswith(f"{SET}?") for _, path, _, _ in azure.asked)

    def test_others_leave_it_to_the_lowest_that_answers_and_look_more_rarely(self, azure: Azure) -> None:
        result = look(lead_request(azure, 2, ttl=86400.0), Others(node000001=5.0))
        assert result["next_s"] == 180.0
        assert azure.changes() == []

    def test_the_next_one_does_when_those_before_do_not_answer(self, azure: Azure) -> None:
        look(lead_request(azure, 2, ttl=86400.0), Others())
        assert any(path.startswith(f"{SET}?") for _, path, _, _ in azure.asked)

    def test_the_next_one_does_when_the_watches_before_do_not_run_or_are_refused(self, azure: Azure) -> None:
        others = Others(node000000=400.0, node000001=400.0)
        others.leaders = []
        result = look(lead_request(azure, 2, idle_stop=300.0), others)
        assert [method for method, _, _ in azure.changes()] == ["POST"]
        assert result["able"] is True

    def test_who_leaves_it_to_others_could_do_it_too(self, azure: Azure) -> None:
        assert look(lead_request(azure, 1, ttl=86400.0), Others(node000000=1.0))["able"] is True

    @pytest.mark.parametrize("where", ["/metadata/identity", f"{SET}/virtualMachines", f"{SET}?"])
    @pytest.mark.parametrize("reply", [(403, {}, b""), (429, {}, b""), (200, {}, b"{}")], ids=str)
    def test_who_is_refused_is_not_able_to(self, azure: Azure, where: str, reply: Reply) -> None:
        azure.instead[where] = reply
        assert look(lead_request(azure, ttl=86400.0, idle_stop=300.0), Others())["able"] is False

    def test_nor_is_who_does_not_reach_azure(self, azure: Azure) -> None:
        request = lead_request(azure, ttl=86400.0)
        assert look({**request, "imds": "http://127.0.0.1:9"}, Others())["able"] is False

    def test_short_spans_are_looked_at_more_often(self, azure: Azure) -> None:
        assert look(lead_request(azure, 1, idle_stop=300.0), Others(node000000=1.0))["next_s"] == 60.0
        assert look(lead_request(azure, 1, idle_stop=12.0), Others(node000000=1.0))["next_s"] == 2.4


class TestWhoItIs:
    """Policies assign identities of their own; with several a request must name one."""

    def token_paths(self, azure: Azure) -> list[str]:
        look(lead_request(azure, ttl=86400.0), Others())
        return [path for _, path, _, _ in azure.asked if path.startswith("/metadata/identity")]

    def test_the_tag_names_the_identity(self, azure: Azure) -> None:
        azure.tags = {"ranklift-identity": "1b4e28ba-2fa1-11d2-883f-0016d3cca427"}
        (path,) = self.token_paths(azure)
        assert path.endswith(
            "&resource=https://management.azure.com/&client_id=1b4e28ba-2fa1-11d2-883f-0016d3cca427"
        )

    def test_what_is_odd_about_it_is_no_other_question(self, azure: Azure) -> None:
        azure.tags = {"ranklift-identity": "a&resource=b c"}
        (path,) = self.token_paths(azure)
        assert path.endswith("&client_id=a%26resource%3Db%20c")

    def test_without_the_tag_it_is_the_only_one(self, azure: Azure) -> None:
        (path,) = self.token_paths(azure)
        assert "client_id" not in path


class TestTheClustersTime:
    def test_a_young_cluster_is_left_alone_until_shortly_before(self, azure: Azure) -> None:
        others = Others()
        assert look(lead_request(azure, ttl=86400.0), others)["next_s"] == 60.0
        azure.made = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() - 3600 + 65))
        assert 1 <= look(lead_request(azure, ttl=3600.0), others)["next_s"] <= 6
        assert (others.ended, azure.changes()) == ([], [])

    def test_its_jobs_are_told_a_minute_before(self, azure: Azure) -> None:
        azure.made = time.strftime("%Y-%m-%dT%H:%M:%S+00:00", time.gmtime(time.time() - 3600 + 50))
        others = Others()
        result = look(lead_request(azure, ttl=3600.0), others)
        ((names, within, reason),) = others.ended
        assert names == [ME, "node000001", "node000002"]
        assert 54 < within <= 55
        assert reason == "the cluster's lifetime of 1 h is over"
        assert "ending 1 job" in result["say"]["act"]
        assert azure.changes() == []

    def test_then_its_scale_set_is_deleted(self, azure: Azure) -> None:
        azure.made = "2020-01-01T00:00:00Z"
        result = look(warned(azure), Others())
        assert azure.changes() == [("DELETE", SET, None)]
        assert result["say"]["act"] == "the cluster's lifetime of 1 h is over: its scale set is being deleted"
        assert result["next_s"] == autostop.REFUSED_S

    def test_a_job_that_claims_the_lead_keeps_no_cluster_for_long(self, azure: Azure) -> None:
        others, request = Others(node000001=5.0), lead_request(azure, 2, ttl=3600.0)
        request["memory"] = look(request, others)["memory"]
        azure.made = "2020-01-01T00:00:00Z"
        request["memory"]["ends"] -= 3600 + autostop.LATE_S
        request["memory"] = look(request, others)["memory"]
        assert (len(others.ended), azure.changes()) == (1, [])
        request["memory"]["warned"] -= 61
        look(request, others)
        assert azure.changes() == [("DELETE", SET, None)]

    def test_a_leader_has_its_time_before_others_act(self, azure: Azure) -> None:
        others, request = Others(node000001=5.0), lead_request(azure, 2, ttl=3600.0)
        azure.made = time.strftime(
            "%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() - 3600 - autostop.LATE_S + 30)
        )
        for _ in range(2):
            request["memory"] = look(request, others)["memory"]
        assert len([path for _, path, _, _ in azure.asked if path.startswith(f"{SET}?")]) == 1
        assert (others.ended, azure.changes()) == ([], [])

    def test_a_leader_that_comes_late_warns_jobs_first(self, azure: Azure) -> None:
        azure.made = "2020-01-01T00:00:00Z"
        others, request = Others(), lead_request(azure, ttl=3600.0)
        result = look(request, others)
        ((_, within, _),) = others.ended
        assert 50 < within <= 55
        assert azure.changes() == []
        request["memory"] = result["memory"]
        assert look(request, others)["memory"] == result["memory"]
        assert azure.changes() == []

    @pytest.mark.parametrize("made", [None, "", "yesterday", 5, "2020-01-01T00:00:00+02:00"])
    def test_a_set_that_does_not_tell_its_age_is_not(self, azure: Azure, made: Any) -> None:
        azure.made = made
        result = look(warned(azure), Others())
        assert azure.changes() == []
        assert "timeCreated" in result["say"]["azure"]

    def test_a_clock_that_is_off_changes_nothing(self) -> None:
        document = {"properties": {"timeCreated": "2016-09-19T18:29:47.0+00:00"}}
        assert time_left(document, 3600.0, 1474309787.0 + 600) == 3000.0


class TestIdleness:
    def test_the_nodes_are_deleted_by_their_ids_and_nothing_is_written(self, azure: Azure) -> None:
        azure.listed.append(azure.vm(11, "node00000b"))
        answers = {"node000001": 400.0, "node000002": 301.0, "node00000b": 400.0}
        result = look(lead_request(azure, idle_stop=300.0), Others(**answers))
        assert azure.changes() == [("POST", f"{SET}/delete", {"instanceIds": ["0", "1", "2", "11"]})]
        assert result["say"]["act"] == "no job for 5 minutes: 4 nodes are being deleted"
        assert result["next_s"] == autostop.REFUSED_S

    def test_a_node_that_comes_meanwhile_is_not_among_them(self, azure: Azure) -> None:
        """Who makes the set larger at that moment wants its nodes."""

        class Slow(Others):
            def answers(self, names: list[str]) -> dict[str, dict[str, float]]:
                azure.listed.append(azure.vm(3, "node000003"))
                azure.sku["capacity"] = 4
                return super().answers(names)

        look(lead_request(azure, idle_stop=300.0), Slow(node000001=400.0, node000002=400.0))
        assert azure.changes() == [("POST", f"{SET}/delete", {"instanceIds": ["0", "1", "2"]})]

    @pytest.mark.parametrize("busy", ["node000001", "node000002"])
    def test_a_job_anywhere_keeps_it(self, azure: Azure, busy: str) -> None:
        others = Others(**{"node000001": 400.0, "node000002": 400.0, busy: 0.0})
        assert look(lead_request(azure, idle_stop=300.0), others)["next_s"] == 30.0
        assert azure.changes() == []

    def test_while_there_is_one_here_nobody_is_asked(self, azure: Azure) -> None:
        others = Others()
        assert look(lead_request(azure, idle=0.0, idle_stop=300.0), others)["next_s"] == 300.0
        assert others.asked == []

    def test_a_cluster_without_nodes_is_not_stopped_again(self, azure: Azure) -> None:
        azure.sku["capacity"] = 0
        look(lead_request(azure, idle_stop=300.0), Others(node000001=400.0, node000002=400.0))
        assert azure.changes() == []

    def test_a_node_that_does_not_answer_may_have_a_job_for_as_long(self, azure: Azure) -> None:
        request = lead_request(azure, idle_stop=300.0)
        result = look(request, Others(node000001=400.0))
        assert azure.changes() == []
        assert result["say"]["nodes"] == "no answer from node000002"
        request["memory"] = result["memory"]
        request["memory"]["silent"]["node000002"] -= 301
        look(request, Others(node000001=400.0))
        assert [method for method, _, _ in azure.changes()] == ["POST"]


class TestWhatAzureSays:
    @pytest.mark.parametrize(
        ("reply", "wait"),
        [
            ((429, {"Retry-After": "17"}, b""), 17.0),
            ((403, {}, {"error": {"code": "AuthorizationFailed", "message": "no\nright"}}), 600.0),
            ((401, {}, b""), 600.0),
            ((409, {}, b"<html>"), 60.0),
            ((500, {}, {"error": "x"}), 60.0),
            ((503, {"Retry-After": "soon"}, b""), 60.0),
        ],
        ids=["429", "403", "401", "409", "500", "503"],
    )
    @pytest.mark.parametrize("where", ["reading", "deleting", "token"])
    def test_a_refusal_is_told_and_tried_again(
        self, azure: Azure, reply: Reply, wait: float, where: str
    ) -> None:
        azure.made = "2020-01-01T00:00:00Z"
        if where == "deleting":
            azure.refusal = reply
        else:
            azure.instead["/metadata/identity" if where == "token" else SET] = reply
        result = look(warned(azure), Others())
        assert result["next_s"] == wait
        assert str(reply[0]) in result["say"]["azure"]
        assert "act" not in result["say"]
        assert len(azure.changes()) == (where == "deleting")

    @pytest.mark.parametrize(
        "listed",
        [None, {}, "x", [1], [{"instanceId": "0"}], [{"instanceId": "x", "properties": {"osProfile": {}}}]],
    )
    def test_a_list_that_is_not_understood_is_no_reason_to_act(self, azure: Azure, listed: Any) -> None:
        azure.made = "2020-01-01T00:00:00Z"
        azure.instead[f"{SET}/virtualMachines"] = (200, {}, {"value": listed})
        assert look(warned(azure), Others())["say"]["azure"]
        assert azure.changes() == []

    @pytest.mark.parametrize("body", [b"", b"[]", b"{}", b"<html>", b"3"])
    def test_nor_is_any_other_answer(self, azure: Azure, body: bytes) -> None:
        for path in ("/metadata/identity", f"{SET}/virtualMachines", f"{SET}?"):
            azure.instead = {path: (200, {}, body)}
            assert look({**warned(azure), "spans": {TTL: 1e-3, IDLE: 1e-3}}, Others())["say"]["azure"]
        assert azure.changes() == []

    def test_a_vm_of_another_set_changes_nothing(self, azure: Azure) -> None:
        request = lead_request(azure, ttl=1.0)
        request["compute"]["name"] = "single"
        assert "malformed" in look(request, Others())["say"]["azure"]
        request["compute"]["name"] = "nodes_7"
        assert "7 is not in list" in look(request, Others())["say"]["azure"]
        assert azure.changes() == []
        del request["compute"]["vmScaleSetName"]
        assert "'vmScaleSetName'" in look(request, Others())["say"]["azure"]

    def test_a_cloud_that_is_not_known_is_not_asked(self, azure: Azure) -> None:
        azure.environment = "AzureMars"
        result = look(lead_request(azure, ttl=1.0), Others())
        assert result["say"]["azure"] == "azEnvironment 'AzureMars' is not a known cloud"
        assert azure.asked == []

    @pytest.mark.parametrize(
        ("environment", "host"),
        [
            ("AzurePublicCloud", "management.azure.com"),
            ("AZUREPUBLICCLOUD", "management.azure.com"),
            ("AzureUSGovernmentCloud", "management.usgovcloudapi.net"),
            ("AzureChinaCloud", "management.chinacloudapi.cn"),
        ],
    )
    def test_azures_own_are_asked_over_tls_for_their_own_token(
        self, azure: Azure, environment: str, host: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        azure.environment = environment
        requests = []
        send = autostop.ScaleSet._send

        def noted(
            own: Any, method: str, base: str, path: str, headers: dict[str, str], body: Any = None
        ) -> Any:
            requests.append((base, path, headers))
            if base != azure.url:
                raise autostop.Refused("far away", 1.0)
            return send(own, method, base, path, headers, body)

        monkeypatch.setattr(autostop.ScaleSet, "_send", noted)
        look(lead_request(azure, ttl=1.0), Others())
        (_, token, _), (base, _, headers) = requests
        assert token.endswith(f"resource=https://{host}/")
        assert base == f"https://{host}"
        assert headers["Authorization"] == "Bearer the token"

    def test_members_come_in_order(self) -> None:
        assert members([Azure.vm(10, "b"), Azure.vm(9, "a")]) == [(9, "a"), (10, "b")]


def test_as_the_watch_runs_it(azure: Azure, tmp_path: Path) -> None:
    watch = install_agent(tmp_path / "lib")
    request = json.dumps({**lead_request(azure, ttl=86400.0), "home": str(tmp_path)})
    argv = [sys.executable, "-I", "-S", str(watch), "lead", request]
    done = subprocess.run(argv, capture_output=True, check=True)
    assert json.loads(done.stdout) == {"next_s": 60.0, "say": {"azure": ""}, "memory": {}, "able": True}
