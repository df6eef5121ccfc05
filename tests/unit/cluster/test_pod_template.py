"""How a user's podTemplate is merged into the operator's pod."""

from __future__ import annotations

from cdcsync_operator.cluster.objects.pod_template import merged


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
    """It has one source: scratch space of another kind is no emptyDir, too."""
    base = {"spec": {"volumes": [{"name": "tmp", "emptyDir": {}}, {"name": "scratch", "emptyDir": {}}]}}
    mine = {"name": "scratch", "ephemeral": {"volumeClaimTemplate": {}}}
    assert merged(base, {"spec": {"volumes": [mine]}})["spec"]["volumes"] == [{"name": "tmp", "emptyDir": {}}, mine]


def test_null_removes_a_key() -> None:
    assert merged({"a": {"b": 1, "c": 2}}, {"a": {"b": None}}) == {"a": {"c": 2}}
