"""A pipeline's application signs in by ARM_* variables, without `az`; commands do what its roles allow."""

from __future__ import annotations

import os
import shlex
import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.e2e.workplace import Workplace

pytestmark = [pytest.mark.azure, pytest.mark.timeout(1800)]

STACK = "rehearsal"
READER = "acdd72a7-3385-48ef-bd42-f606fba81ae7"
CONTRIBUTOR = "b24988ac-6180-42a0-ab88-20f7382dd24c"
"""Ids of Azure's own roles."""


@pytest.fixture(scope="module")
def pipeline(workplace: Workplace, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workplace]:
    """A stack of one node, and a shell with a home of its own without `az`."""
    workplace.configure(STACK, nodeCount=1)
    path = [part for part in os.environ["PATH"].split(os.pathsep) if not Path(part, "az").exists()]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HOME", str(tmp_path_factory.mktemp("pipeline")))
        patch.setenv("PATH", os.pathsep.join(path))
        assert shutil.which("az") is None
        yield workplace


def application(pipeline: Workplace) -> dict[str, str]:
    """The variables that the rehearsal gives of its application."""
    lines = shlex.split(pipeline.folder.application.read_text())
    return dict(line.split("=", 1) for line in lines)


@contextmanager
def signed_in(pipeline: Workplace, *, by: str, **other: str) -> Iterator[None]:
    """The variables of the rehearsal's application are set: those of one method, some perhaps changed."""
    given = application(pipeline) | {"ARM_USE_OIDC": "true"}
    left_out = {"secret": ("ARM_USE_OIDC", "ARM_OIDC_TOKEN_FILE_PATH"), "file": ("ARM_CLIENT_SECRET",)}[by]
    with pytest.MonkeyPatch.context() as patch:
        for name, value in (given | other).items():
            if name not in left_out:
                patch.setenv(name, value)
        yield


@contextmanager
def role(pipeline: Workplace, name: str) -> Iterator[None]:
    """The application has the role on the subscription, as its owner assigned it."""
    subscription = f"/subscriptions/{pipeline.record.subscription_id}/providers/Microsoft.Authorization"
    assignment = f"{subscription}/roleAssignments/{uuid.uuid4()}"
    wanted = {
        "roleDefinitionId": f"{subscription}/roleDefinitions/{name}",
        "principalId": application(pipeline)["APPLICATION_OBJECT_ID"],
        "principalType": "ServicePrincipal",
    }
    pipeline.ask("PUT", assignment, {"properties": wanted}, version="2022-04-01")
    try:
        yield
    finally:
        pipeline.ask("DELETE", assignment, version="2022-04-01")


@pytest.mark.parametrize(
    ("variable", "code"), [("ARM_CLIENT_SECRET", "AADSTS7000215"), ("ARM_CLIENT_ID", "AADSTS700016")]
)
def test_what_the_directory_refuses_ends_every_command(pipeline: Workplace, variable: str, code: str) -> None:
    with signed_in(pipeline, by="secret", **{variable: "another"}):
        for command in ("plan", "up"):
            refused = pipeline.fab(command, status=None)
            assert refused.status != 0
            assert f"Azure refuses the sign-in by ARM_* variables: {code}" in refused.err, refused
    assert pipeline.groups() == set()


def test_a_pipelines_token_that_the_application_does_not_trust_is_refused(
    pipeline: Workplace, tmp_path: Path
) -> None:
    (tmp_path / "token").write_text("another")
    with signed_in(pipeline, by="file", ARM_OIDC_TOKEN_FILE_PATH=str(tmp_path / "token")):
        refused = pipeline.fab("plan", status=None)
    assert refused.status != 0
    assert "Azure refuses the sign-in by ARM_* variables: AADSTS70021" in refused.err, refused


def test_an_application_without_a_role_sees_nothing(pipeline: Workplace) -> None:
    with signed_in(pipeline, by="secret"):
        refused = pipeline.fab("plan", status=None)
    assert refused.status != 0
    assert "the signed-in identity has no role" in refused.err, refused


def test_an_application_makes_shows_and_removes_a_cluster_by_its_roles(pipeline: Workplace) -> None:
    with signed_in(pipeline, by="secret"), role(pipeline, CONTRIBUTOR):
        assert "ND40rs" in pipeline.fab("plan").out
        pipeline.fab("up")
    for by in ("secret", "file"):
        with signed_in(pipeline, by=by), role(pipeline, READER):
            assert "node000000" in pipeline.fab("status").out
            refused = pipeline.fab("replace", "0", "--reimage", status=None)
            assert refused.status != 0
            assert "lacks the right Microsoft.Compute/virtualMachineScaleSets/reimage" in refused.err, refused
    with signed_in(pipeline, by="file"), role(pipeline, CONTRIBUTOR):
        pipeline.fab("replace", "0", "--reimage")
        pipeline.fab("down", "--yes")
    assert pipeline.groups() == set()
