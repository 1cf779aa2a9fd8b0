"""One walker over Microsoft's models: checking, nesting, flattening."""

from __future__ import annotations

import importlib
import inspect
import re
from typing import Any

import pytest

from rehearsal.arm.core.errors import ArmError
from rehearsal.arm.core.models import check, flatten, model, nest, shape
from rehearsal.arm.resource_types import RESOURCE_TYPES

BALANCER = {
    "location": "westeurope",
    "sku": {"name": "Standard"},
    "inboundNatRules": [{"name": "ssh", "backendPort": 22, "backendAddressPool": {"id": "/p"}}],
    "tags": {"properties": "a tag of this name stays a tag"},
}
NESTED = {
    "location": "westeurope",
    "sku": {"name": "Standard"},
    "tags": {"properties": "a tag of this name stays a tag"},
    "properties": {
        "inboundNatRules": [
            {"name": "ssh", "properties": {"backendPort": 22, "backendAddressPool": {"id": "/p"}}}
        ]
    },
}


def test_flat_inputs_nest_and_come_back() -> None:
    cls = model("network.LoadBalancer")
    assert nest(cls, BALANCER) == NESTED
    assert flatten(cls, NESTED) == BALANCER


def test_unknown_inputs_stay_where_they_are_for_arm_to_refuse() -> None:
    nested = nest(model("network.Subnet"), {"name": "s", "adressPrefix": "10.0.0.0/20"})
    with pytest.raises(ArmError, match="'adressPrefix' on object of type 'Subnet'"):
        check(model("network.Subnet"), nested)


def test_what_only_azure_sets_is_passed_over() -> None:
    body = {
        "location": "x",
        "type": "t",
        "etag": "e",
        "properties": {"provisioningState": "Failed", "subnets": []},
    }
    assert check(model("network.VirtualNetwork"), body) == {"location": "x", "properties": {"subnets": []}}


@pytest.mark.parametrize(
    ("name", "body", "problem"),
    [
        (
            "compute.VirtualMachineScaleSet",
            {"location": "x", "sku": []},
            "Error converting value .* to type 'Sku'",
        ),
        ("compute.VirtualMachineScaleSet", {"location": "x", "zones": "1"}, "to type 'list'"),
        ("compute.VirtualMachineScaleSet", {"location": "x", "tags": {"a": 1}}, r"Path 'tags\.a'"),
        (
            "compute.VirtualMachineScaleSet",
            {"location": "x", "properties": {"overprovision": "false"}},
            "to type 'boolean'",
        ),
        ("compute.VirtualMachineScaleSet", {"location": "x", "sku": {"capacity": True}}, "to type 'integer'"),
        ("compute.VirtualMachineScaleSet", {}, "Required parameter 'location' is missing"),
        (
            "network.SecurityRule",
            {"name": "r", "properties": {"priority": 1}},
            "Required property 'protocol'",
        ),
        (
            "network.VirtualNetwork",
            {"properties": {"subnets": [{}, {"properties": {"x": 1}}]}},
            r"Path 'properties\.subnets\[1\]\.properties\.x'",
        ),
        ("resources.ResourceGroup", {}, "LocationRequired"),
    ],
)
def test_bodies_that_the_models_do_not_allow_are_refused(
    name: str, body: dict[str, Any], problem: str
) -> None:
    with pytest.raises(ArmError, match=problem) as refused:
        check(model(name), body)
    assert refused.value.status == 400


IN_THE_QUERY = {"expand"}
"""Of a file share: said in the request's query and not in the body; the emulation does not take it."""


@pytest.mark.parametrize("token", RESOURCE_TYPES.tokens)
def test_every_input_of_pulumis_sdk_has_its_place(token: str) -> None:
    _, service, name = token.split(":")
    # By its own module: the package behind it may be one that Pulumi has not filled yet.
    own = re.sub(r"(?<=[a-z])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name).lower()
    module = importlib.import_module(f"pulumi_azure_native.{service}.{own}")
    arguments = inspect.signature(getattr(module, name)._internal_init).parameters
    kind = RESOURCE_TYPES.by_token(token)
    assert kind is not None
    known = set(kind.inputs)
    for cls in (kind.model, shape(kind.model).fields["properties"].model):
        assert cls is not None
        known |= {shape(cls).renamed.get(n, n) for n in shape(cls).fields}
    squeezed = {n.lower() for n in known}
    given = {
        a.replace("_", "") for a in arguments if a not in ("__self__", "__props__", "resource_name", "opts")
    }
    assert given - IN_THE_QUERY <= squeezed
