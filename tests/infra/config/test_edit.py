"""Settings as a change would leave them, and the mistakes that it would make."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from infra.config import edit
from launch.errors import InputError

COMPLETE = {
    "ranklift:vmSize": "Standard_ND40rs_v2",
    "ranklift:nodeCount": "2",
    "ranklift:location": "southcentralus",
    "ranklift:sshFrom": "127.0.0.1/32",
}


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ("vmsize", "unknown setting; did you mean vmSize?"),
        ("ranklfit:vmSize", "unknown setting; did you mean vmSize?"),
        ("azure-native:subscriptionID", "unknown setting; did you mean azure-native:subscriptionId?"),
        ("zzz", "unknown setting; known settings: access, adminUser, "),
        ("aws:region", "unknown setting; `pulumi config` has what is neither ranklift's nor azure-native's"),
        ("tags.team", "is a path into tags; give --path"),
        ("dataOperators[0]", "is a path into dataOperators; give --path"),
        ("", "unknown setting"),
    ],
)
def test_an_unknown_key_is_refused_with_the_most_similar_one(given: str, problem: str) -> None:
    with pytest.raises(InputError, match=re.escape(problem)):
        edit.full_key(given)


def test_the_providers_keys_are_those_of_the_installed_provider() -> None:
    import pulumi_azure_native.config

    source = (Path(pulumi_azure_native.config.__file__).parent / "vars.py").read_text()
    assert set(re.findall(r"__config__\.get\w*\('(\w+)'", source)) == set(edit._PROVIDER_KEYS)


@pytest.mark.parametrize("given", ["tags.", "tags[x]", "[0]", "tags..a", "tags[0", 'tags["a]'])
def test_what_is_no_path_is_refused(given: str) -> None:
    with pytest.raises(InputError, match=r"is not a path; write it like tags\.team or dataOperators"):
        edit.steps_of(given)


@pytest.mark.parametrize(
    ("there", "steps", "value", "then"),
    [
        (None, (), "x", "x"),
        ("x", (), "true", "true"),  # typed below a path alone
        (None, ("a",), "x", {"a": "x"}),
        (None, (0,), "x", ["x"]),
        ({"a": {"b": 1}}, ("a", "c"), "true", {"a": {"b": 1, "c": True}}),
        (["x"], (1,), "y", ["x", "y"]),
        (["x", "y"], (0,), "z", ["z", "y"]),
        ([{"a": 1}], (0, "b"), "-5", [{"a": 1, "b": -5}]),
    ],
)
def test_a_value_is_put_where_its_path_leads(there: Any, steps: edit.Steps, value: str, then: Any) -> None:
    before = {} if there is None else {"ranklift:k": there}
    assert edit.changed(before, "ranklift:k", steps, value) == {"ranklift:k": then}


@pytest.mark.parametrize(
    ("there", "steps", "problem"),
    [
        ('{"a": "b"}', ("c",), "is not a map, and a path into it would replace it; set all of it, as JSON"),
        ("x", (0,), "is not a list, and a path into it would replace it"),
        ({"a": "b"}, (0,), "is not a list"),
        (["x"], (2,), r"= '[2]': has 1 entries, and the next is [1]"),
    ],
)
def test_a_path_replaces_no_value_of_another_kind(there: Any, steps: edit.Steps, problem: str) -> None:
    with pytest.raises(InputError, match=re.escape(problem)):
        edit.changed({"ranklift:k": there}, "ranklift:k", steps, "y")


def test_a_value_is_removed_alone() -> None:
    before = {"ranklift:k": {"a": [1, 2, 3], "b": 1}, "ranklift:l": "x"}
    assert edit.removed(before, "ranklift:k", ("a", 1)) == {**before, "ranklift:k": {"a": [1, 3], "b": 1}}
    assert edit.removed(before, "ranklift:k", ("b",)) == {**before, "ranklift:k": {"a": [1, 2, 3]}}
    assert edit.removed(before, "ranklift:k", ()) == {"ranklift:l": "x"}
    for key, steps in (("ranklift:n", ()), ("ranklift:k", ("c",)), ("ranklift:k", ("a", 7))):
        with pytest.raises(InputError, match="is not set"):
            edit.removed(before, key, steps)


def test_what_is_missing_is_no_mistake_and_hides_none() -> None:
    assert edit.mistakes({}) == []
    assert edit.missing({}) == [f"ranklift:{key}" for key in ("vmSize", "nodeCount", "location", "sshFrom")]
    given = {"ranklift:vmSize": "Standard_ND40rs_v2", "ranklift:monitor": "true"}
    assert [error.key for error in edit.mistakes(given)] == ["ranklift:monitor"]
    assert edit.missing(COMPLETE) == []


def test_settings_that_need_each_other_can_be_set_one_after_the_other() -> None:
    network = "/subscriptions/0/resourceGroups/g/providers/Microsoft.Network/virtualNetworks/v/subnets/s"
    half = {**COMPLETE, "ranklift:subnetId": network}
    assert edit.mistakes(half) == []
    assert edit.missing(half) == ["ranklift:subnetPrefix"]
    assert edit.missing({**half, "ranklift:subnetPrefix": "10.1.0.0/24"}) == []
