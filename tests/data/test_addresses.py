"""Each kind of address that a job names its data by, on rehearsed storage; what is wrong is refused first."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.data.staging_nodes import Nodes

pytestmark = [pytest.mark.data, pytest.mark.timeout(1800)]

NAMES = ("a b/ü ñ.txt", "日本語.txt", "plus+and%20percent #1?.txt", "deep/er/& <x>.txt", "empty.txt")
STORE = "azureml://datastores/workspaceblobstore/paths"
LONG = "azureml://subscriptions/0/resourcegroups/r/workspaces/w/datastores"
JOB = """
command: >-
  cd ${{{{inputs.folder}}}} && find . -type f | LC_ALL=C sort | sed s/^/folder:/;
  for one in ${{{{inputs.file}}}} ${{{{inputs.long}}}} ${{{{inputs.asset}}}} ${{{{inputs.https}}}}
  ${{{{inputs.wasbs}}}} ${{{{inputs.abfss}}}} ${{{{inputs.pushed}}}}; do sed "s/^/file:/" "$one"; done;
  ls ${{{{inputs.table}}}} ${{{{inputs.there}}}}; echo direct:${{{{inputs.direct}}}};
  test -w ${{{{inputs.file}}}} || echo read-only
inputs:
  folder: {{type: uri_folder, path: {store}/names, mode: download}}
  file: {{type: uri_file, path: {store}/one.txt, mode: ro_mount}}
  long: {{type: uri_file, path: {long}/data/paths/one.txt}}
  asset: {{type: uri_file, path: "azureml:one:1"}}
  https: {{type: uri_file, path: "{account}/data/one.txt"}}
  wasbs: {{type: uri_file, path: "wasbs://data@{host}/one.txt"}}
  abfss: {{type: uri_file, path: "abfss://data@{dfs}/one.txt"}}
  table: {{type: mltable, path: {store}/table/}}
  pushed: {{type: uri_file, path: pushed.txt}}
  there: {{type: uri_folder, path: file:///usr/share/misc}}
  direct: {{type: uri_folder, path: {store}/names, mode: direct}}
distribution: {{type: pytorch}}
resources: {{instance_count: 2}}
"""


@pytest.fixture(scope="module")
def filled(nodes: Nodes) -> Nodes:
    """What the addresses name is in storage."""
    for name in NAMES:
        nodes.container.upload_blob(f"names/{name}", b"" if name == "empty.txt" else name.encode())
    nodes.container.upload_blob("one.txt", b"one\n")
    nodes.container.upload_blob("table/MLTable", b"paths: []\n")
    own = nodes.workplace.own
    (own / "pushed.txt").write_text("pushed\n")
    (own / "data").mkdir(exist_ok=True)
    (own / "data/one.yml").write_text(f"name: one\nversion: 1\ntype: uri_file\npath: {STORE}/one.txt\n")
    return nodes


@pytest.mark.for_every_change
def test_every_kind_of_address_is_a_path_on_the_nodes(filled: Nodes) -> None:
    account = f"https://{filled.container.account_name}.blob.core.windows.net"
    host = account.removeprefix("https://")
    job = JOB.format(store=STORE, long=LONG, account=account, host=host, dfs=host.replace(".blob.", ".dfs."))
    (filled.workplace.own / "job.yml").write_text(job)
    out = filled.fab("launch", "job.yml").out
    for node in ("[0 node000000]", "[1 node000001]"):
        lines = [line.removeprefix(f"{node} ") for line in out.splitlines() if line.startswith(node)]
        assert [line for line in lines if line.startswith("folder:")] == [
            f"folder:./{name}" for name in sorted(NAMES, key=str.encode)
        ]
        assert lines.count("file:one") == 6
        assert lines.count("file:pushed") == 1
        assert f"direct:{account}/data/names" in lines
        assert {"MLTable", "read-only"} <= {*lines}


@pytest.mark.parametrize(
    ("address", "problem"),
    [
        (f"{STORE}/nothing/", "no blob is below nothing/: a single file is a uri_file"),
        (f"{STORE}/nothing.txt", "404 BlobNotFound: there is no such blob"),
        (f"{STORE}/one.txt/", "no blob is below one.txt/: a single file is a uri_file"),
        ("azureml://datastores/elsewhere/paths/x/", "403 AuthorizationPermissionMismatch: give the nodes'"),
        ("https://nosuchaccount0.blob.core.windows.net/data/x/", "nosuchaccount0.blob.core.windows.net"),
    ],
)
def test_what_storage_has_not_is_named_and_no_job_is_made(filled: Nodes, address: str, problem: str) -> None:
    before = filled.fab("jobs", "--json").json()
    ran = filled.fab("launch.torch", "cat ${{inputs.x}}", "--input", f"x={address}", status=None)
    assert ran.status != 0
    assert problem in ran.err
    assert filled.fab("jobs", "--json").json() == before


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("path: azureml:none:1", "line 3: inputs.x.path = 'azureml:none:1': no file in"),
        ("path: azureml:one:7", "has no such version, only 1"),
        (f"path: {STORE}/a/../b", "line 3: inputs.x.path = "),
        (
            "path: azureml://datastores/My_Store/paths/x",
            "is not a datastore here: no container can have this",
        ),
        ("path: 'https://acme.blob.core.windows.net/data/x?sig=abc'", "holds a SAS, which others could read"),
        ("path: http://example.com/x", "is not encrypted; give the https: address"),
        ("path: s3://bucket/x", "is not fetched; copy it to storage"),
        ("path: https://example.com/x", "is one file of a web server; make the type uri_file"),
        (f"path: {STORE}/x, mode: rw_mount", "inputs.x.mode = 'rw_mount': "),
        (f"path: {STORE}/x, mode: eval_mount", "inputs.x.mode = 'eval_mount': is not how data comes"),
        ("path: missing-folder", "line 3: inputs.x.path = 'missing-folder': "),
    ],
)
def test_a_wrong_input_is_refused_by_its_line_before_anything_runs(
    filled: Nodes, line: str, problem: str
) -> None:
    job = f"command: ls ${{{{inputs.x}}}}\ninputs:\n  x: {{type: uri_folder, {line}}}\n"
    (filled.workplace.own / "wrong.yml").write_text(job)
    before = filled.left_storage()
    ran = filled.fab("launch", "wrong.yml", status=2)
    assert problem in ran.err
    assert "wrong.yml, line 3" in ran.err
    assert filled.left_storage() == before


def test_names_that_no_folder_can_have_are_refused(filled: Nodes) -> None:
    filled.container.upload_blob("wrong/a//b.txt", b"x")
    ran = filled.stage("wrong", status=None)
    assert ran.status != 0
    assert "'a//b.txt' is not a name that a file can have; rename it in storage" in ran.err


def test_an_empty_folder_is_refused_here_and_one_that_a_tool_marked_is_staged(
    filled: Nodes, tmp_path: Path
) -> None:
    (tmp_path / "bare").mkdir()
    assert filled.fab("data.put", str(tmp_path / "bare"), status=2).err
    filled.container.upload_blob("marked/", b"", metadata={"hdi_isfolder": "true"})
    path = filled.stage("marked").out.strip()
    assert filled.held(path) == {"node000000": {}, "node000001": {}}


def test_a_firewall_that_lets_nobody_in_is_named(filled: Nodes) -> None:
    workplace = filled.workplace
    (account,) = (
        one["id"]
        for one in workplace.azure("/resources")["value"]
        if one["type"].lower() == "microsoft.storage/storageaccounts"
    )
    body, _ = workplace.ask("GET", account, version="2023-05-01")
    rules = body["properties"]["networkAcls"]
    closed = {**rules, "virtualNetworkRules": [], "ipRules": []}
    workplace.ask("PATCH", account, {"properties": {"networkAcls": closed}}, version="2023-05-01")
    try:
        ran = filled.stage("one.txt", "--file", status=None)
    finally:
        workplace.ask("PATCH", account, {"properties": {"networkAcls": rules}}, version="2023-05-01")
    assert ran.status != 0
    assert "403 AuthorizationFailure: the account's firewall refuses the nodes" in ran.err
    filled.stage("one.txt", "--file")
