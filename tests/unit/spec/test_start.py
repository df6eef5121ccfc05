"""`spec.start`: which fields go together, and what each means."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from cdcsync_core.resource.spec import Spec
from cdcsync_core.resource.start_spec import Start
from unit.controller.harness import resource

UUID = "11111111-2222-3333-4444-555555555555"


@pytest.mark.parametrize(
    "fields",
    [
        {"from": "position"},
        {"from": "position", "file": "binlog.000001"},
        {"from": "position", "file": "binlog", "offset": 4},
        {"from": "position", "file": "binlog.000001", "offset": 3},
        {"from": "latest", "gtidSet": "0-1-2"},
        {"from": "gtid"},
        {"from": "gtid", "gtidSet": ","},
        {"from": "gtid", "gtidSet": f"{UUID}:5-1"},
        {"from": "gtid", "gtidSet": f"{UUID}:1-{2**63}"},
        {"from": "gtid", "gtidSet": "0-1-18446744073709551616"},
        {"from": "gtid", "gtidSet": f"{UUID}:१-२"},
        {"from": "gtid", "gtidSet": "0-1"},
        {"from": "timestamp", "timestamp": "2026-01-31T12:00:00"},
        {"from": "timestamp", "timestamp": "2026-02-31T12:00:00Z"},
        {"file": "binlog.000001", "offset": 4},
    ],
)
def test_what_is_no_start(fields: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        Start.model_validate(fields)


def test_a_start_of_each_kind() -> None:
    for fields in (
        {"from": "position", "file": "a.b.000001", "offset": 4},
        {"from": "gtid", "gtidSet": "0-1-2, 1-2-3"},
        {"from": "gtid", "gtidSet": f"{UUID}:1-5:7"},
        {"from": "latest"},
    ):
        assert not Start.model_validate(fields).with_snapshot
    assert Start.model_validate({"from": "timestamp", "timestamp": "1970-01-01T01:00:01.5+01:00"}).seconds == 1.5


def test_the_spelling_of_before_is_the_default() -> None:
    assert Start.model_validate({"from": "Snapshot"}) == Start()
    assert Start().with_snapshot


def test_a_requested_resnapshot_is_one() -> None:
    spec = resource(start={"from": "latest"}, resnapshot=[{"table": "shop.a", "nonce": 1}]).spec
    assert [spec.begins_at_start(name) for name in ("shop.a", "shop.b")] == [False, True]
    assert not resource().spec.begins_at_start("shop.b")


def test_a_sync_of_a_snapshot_only_has_one() -> None:
    spec = resource().spec.model_dump(by_alias=True, exclude_none=True)
    with pytest.raises(ValidationError, match=r"start\.from snapshot"):
        Spec.model_validate(spec | {"snapshot": {"only": True}, "start": {"from": "latest"}})
