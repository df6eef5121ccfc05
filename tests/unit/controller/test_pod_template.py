"""What a user lays over a pod, and what this cluster refuses of it."""

from __future__ import annotations

from typing import Any

import pytest

from cdcsync_operator.pod_template import Policy, merged, refusals
from unit.controller.world import resource


def test_named_things_are_merged_and_other_lists_replaced() -> None:
    base = {
        "spec": {
            "containers": [
                {"name": "driver", "image": "ours", "args": ["driver"], "env": [{"name": "A", "value": "1"}]},
            ],
            "tolerations": [{"key": "old"}],
        }
    }
    patch = {
        "spec": {
            "containers": [
                {
                    "name": "driver",
                    "args": ["other"],
                    "env": [{"name": "B", "value": "2"}, {"name": "A", "value": "3"}],
                },
                {"name": "proxy", "image": "theirs"},
            ],
            "tolerations": [{"key": "new"}],
            "nodeSelector": {"disk": "fast"},
        }
    }
    pod = merged(base, patch)["spec"]
    driver, proxy = pod["containers"]
    assert (driver["image"], driver["args"]) == ("ours", ["other"])
    assert driver["env"] == [{"name": "A", "value": "3"}, {"name": "B", "value": "2"}]
    assert proxy == {"name": "proxy", "image": "theirs"}
    assert (pod["tolerations"], pod["nodeSelector"]) == ([{"key": "new"}], {"disk": "fast"})


def test_a_volume_of_ours_is_replaced_whole() -> None:
    """It has one source: scratch space of another kind is no emptyDir beside it."""
    base = {"spec": {"volumes": [{"name": "tmp", "emptyDir": {}}, {"name": "scratch", "emptyDir": {}}]}}
    mine = {"name": "scratch", "ephemeral": {"volumeClaimTemplate": {}}}
    assert merged(base, {"spec": {"volumes": [mine]}})["spec"]["volumes"] == [{"name": "tmp", "emptyDir": {}}, mine]


def test_null_removes_a_key() -> None:
    assert merged({"a": {"b": 1, "c": 2}}, {"a": {"b": None}}) == {"a": {"c": 2}}


REFUSED = [
    ({"spec": {"hostNetwork": True}}, "spec.hostNetwork is refused"),
    ({"spec": {"hostPID": True}}, "spec.hostPID is refused"),
    ({"spec": {"hostIPC": True}}, "spec.hostIPC is refused"),
    ({"spec": {"serviceAccountName": "admin"}}, "spec.serviceAccountName is refused"),
    ({"spec": {"restartPolicy": "Always"}}, "spec.restartPolicy is refused"),
    ({"spec": {"volumes": [{"name": "v", "hostPath": {"path": "/"}}]}}, "volume v is a hostPath"),
    ({"spec": {"containers": [{"name": "c", "securityContext": {"privileged": True}}]}}, "c: privileged is refused"),
    (
        {"spec": {"initContainers": [{"name": "c", "securityContext": {"allowPrivilegeEscalation": True}}]}},
        "c: allowPrivilegeEscalation is refused",
    ),
    (
        {"spec": {"containers": [{"name": "c", "securityContext": {"capabilities": {"add": ["NET_RAW"]}}}]}},
        "c: capabilities.add is refused",
    ),
    (
        {"spec": {"containers": [{"name": "c", "ports": [{"containerPort": 1, "hostPort": 1}]}]}},
        "c: hostPort is refused",
    ),
    ({"template": {}}, "template is not part of a pod template"),
]


@pytest.mark.parametrize(("template", "said"), REFUSED, ids=[said for _, said in REFUSED])
@pytest.mark.parametrize("part", ["driver", "executors"])
def test_what_would_give_a_pod_the_node_is_refused(part: str, template: dict[str, Any], said: str) -> None:
    (found,) = refusals(resource(**{part: {"podTemplate": template}}).spec, Policy())
    assert found.startswith(f"spec.{part}.podTemplate: ")
    assert said in found


def test_templates_can_be_forbidden_as_a_whole() -> None:
    spec = resource(driver={"podTemplate": {"metadata": {"labels": {"a": "b"}}}}).spec
    assert refusals(spec, Policy()) == []
    assert refusals(spec, Policy(allow_pod_template=False)) == [
        "spec.driver.podTemplate: the operator's policy allows none"
    ]


def _mounting(name: str, path: str) -> dict[str, Any]:
    return {
        "podTemplate": {"spec": {"containers": [{"name": name, "volumeMounts": [{"name": "v", "mountPath": path}]}]}}
    }


@pytest.mark.parametrize(
    ("path", "mounted", "said"),
    [
        ("s3://lake/tables", {}, ""),
        ("s3a://lake/tables", {}, ""),
        ("gs://lake/tables", {}, "gs://lake/tables is in a store that is not supported; needed: s3://"),
        ("/lake/tables", {}, "/lake/tables is a folder of each pod alone; needed: s3://"),
        ("./lake", {"driver": "/lake", "executors": "/lake"}, "./lake is a folder of each pod alone"),
        ("/lake/tables", {"driver": "/lake"}, "a folder of each pod alone"),
        ("/lake/tables", {"executors": "/lake"}, "a folder of each pod alone"),
        ("/lakes", {"driver": "/lake", "executors": "/lake"}, "a folder of each pod alone"),
        ("/lake/tables", {"driver": "/lake", "executors": "/lake"}, ""),
    ],
)
def test_tables_must_be_where_every_pod_finds_them(path: str, mounted: dict[str, str], said: str) -> None:
    parts = {part: _mounting(part.removesuffix("s"), where) for part, where in mounted.items()}
    found = refusals(resource(sink={"delta": {"path": path}}, **parts).spec, Policy())
    assert [said in f for f in found] == ([True] if said else [])


def test_a_service_account_must_be_an_allowed_one() -> None:
    spec = resource(driver={"serviceAccountName": "cloud"}).spec
    assert "cloud is not one of the operator's allowed ones (none)" in refusals(spec, Policy())[0]
    assert refusals(spec, Policy(allowed_service_accounts=frozenset({"cloud"}))) == []
    assert refusals(spec, Policy(allowed_service_accounts=frozenset({"*"}))) == []
