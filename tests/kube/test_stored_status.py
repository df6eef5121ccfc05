"""What the API server keeps of a status: all that the operator writes, and nothing else."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

import pytest

from cdcsync_core.runs.run import TableAssignment, TablePhase
from cdcsync_core.runs.status import Status, with_tables
from cdcsync_core.runs.status_part import StatusPosition, StatusServer, StatusSplit, StatusWatermark
from cdcsync_core.runs.table_status import SinkWriteStatus, TableStatus
from cdcsync_core.tables.source_table import SourceType
from cdcsync_kube.client import ApiError, Object
from cdcsync_operator.cluster.objects.driver_pod import Image
from cdcsync_operator.cluster.policy.pod_policy import PodPolicy
from cdcsync_operator.cluster.store import KubeStore
from cdcsync_operator.reconcile.planning import table_plans
from support.in_process_sync import InProcessSync, table

_GTIDS = "4e4f1f2a-0000-0000-0000-000000000001:1-77"
_ANCHOR = {"file": "binlog.000007", "offset": 4, "created": 1_700_000_000}
_POSITION = StatusPosition.model_validate(
    {"file": "binlog.000007", "offset": 2**40, "gtidSet": _GTIDS, "exact": True, "anchor": _ANCHOR}
)
#: no number of JSON for most readers, the API server among them
_UNSIGNED = 2**64 - 5


def store(sync: InProcessSync) -> KubeStore:
    found = KubeStore(sync.api, sync.namespace, "shop", PodPolicy(), Image("x"), lambda _: None)
    found.load()
    return found


def full_status() -> Status:
    positioned = TableStatus(
        name="shop.a",
        phase=TablePhase.STREAMING,
        finished=(StatusSplit(),),
        low=_POSITION,
        high=StatusWatermark.model_validate({"gtidSet": _GTIDS, "exact": True}),
        position=_POSITION.model_copy(update={"timestamp": "2026-01-01T00:00:00Z"}),
        written=SinkWriteStatus(version=3, program="other", operation="DELETE"),
    )
    bounds = [(_UNSIGNED - 1, "00ff", -(2**63)), (_UNSIGNED, "f" * 6144, 1)]
    begun = TableStatus(
        name="shop.b", phase=TablePhase.SNAPSHOTTING, finished=(StatusSplit(start=None, end=bounds[1]),)
    )
    odd = TableStatus(
        name="shop.c", high=StatusWatermark(file="b.000001", offset=4), finished=(StatusSplit(start=bounds[0]),)
    )
    server = StatusServer(flavor="mysql", version="9.7.1", server_id=2**32 - 1, server_uuid="u", gtid=True)
    return with_tables(Status(source=server, position=_POSITION), [positioned, begun, odd])


def test_all_that_the_operator_writes_is_kept(sync: InProcessSync) -> None:
    sync.create()
    status = full_status()
    store(sync).save(status)
    wanted = status.model_dump(by_alias=True, mode="json", exclude_none=True) | {"runs": {}}
    assert sync.api.get(f"{sync.syncs}/shop")["status"] == wanted
    assert wanted["tableStatus"][0]["finished"] == [{"start": None, "end": None}]
    stored = store(sync).status()
    assert stored.model_dump() == status.model_dump()
    assert stored.table_status[0].is_read


def test_a_plan_goes_on_at_a_key_beyond_the_numbers_of_json(sync: InProcessSync) -> None:
    """Where another operator read the status again."""
    sync.create()
    entry = TableStatus(
        name="shop.a", phase=TablePhase.SNAPSHOTTING, finished=(StatusSplit(end=(_UNSIGNED,)),), generation=1
    )
    store(sync).save(with_tables(Status(), [entry]))
    capture = table("shop.a")
    (column,) = capture.source.columns
    unsigned = replace(column, type=SourceType.parse("bigint unsigned"))
    assignment = TableAssignment(replace(capture, source=replace(capture.source, columns=(unsigned,))), 0, 1)
    (plan,) = table_plans(store(sync).status(), [assignment])
    assert plan.frontier == (_UNSIGNED,)


def test_texts_without_end_are_stored_as_far_as_their_bounds(sync: InProcessSync) -> None:
    sync.create()
    failed = TableStatus(name="shop.a", phase=TablePhase.FAILED, reason="r" * 5000, message="m" * 200_000)
    store(sync).save(with_tables(Status(), [failed]))
    (stored,) = store(sync).status().table_status
    assert (len(stored.reason), len(stored.message)) == (1024, 32768)


def nested(depth: int) -> Object:
    inner: Object = {}
    for _ in range(depth):
        inner = {"x": inner}
    return inner


def with_unknown(value: Any) -> Any:
    """An unknown field in every object."""
    if isinstance(value, list):
        return [with_unknown(v) for v in value]
    if not isinstance(value, dict):
        return value
    return {k: with_unknown(v) for k, v in value.items()} | {"unknown": nested(700), "more": ["x" * 1000]}


def test_what_no_field_describes_is_not_kept_in_a_status(sync: InProcessSync) -> None:
    """Writes the status as any account with the right to."""
    sync.create()
    store(sync).save(full_status())
    path = f"{sync.syncs}/shop"
    found = sync.api.get(path)
    kept = sync.api.replace(f"{path}/status", found | {"status": with_unknown(copy.deepcopy(found["status"]))})
    assert kept["status"] == found["status"]


@pytest.mark.parametrize(
    "part",
    [
        {"position": {"gtidSet": "x" * (2**20 + 1)}},
        {"position": {"offset": 10**300}},
        {"source": {"version": "9" * 1025}},
        {"source": {"version": {"deep": {}}}},
        {"tableStatus": [{"name": "a.b", "finished": [{"start": [["deep"]]}]}]},
        {"tableStatus": [{"name": "a.b", "finished": [{"start": ["f" * 16385]}]}]},
        {"tableStatus": [{"name": "a.b", "finished": [{"start": [1] * 33}]}]},
        {"tableStatus": [{"name": "a.b", "finished": [{"start": None}] * 5}]},
        {"tableStatus": [{"name": f"a.{n}"} for n in range(1001)]},
    ],
    ids=lambda part: str(part)[:60],
)
def test_a_status_beyond_its_bounds_is_refused(sync: InProcessSync, part: Object) -> None:
    sync.create()
    with pytest.raises(ApiError) as caught:
        sync.api.merge(f"{sync.syncs}/shop/status", {"status": part})
    assert caught.value.status == 422


# ---- tables in ConfigMaps, and an operator that has lost its lease unnoticed


def large(sync: InProcessSync, failed: str = "", rows: int = 0) -> Status:
    """Six hundred tables, in two ConfigMaps; `rows` is that of a table in each."""
    tables = [TableStatus(name=f"shop.t{i:04d}", phase=TablePhase.STREAMING) for i in range(600)]
    update = {"phase": TablePhase.FAILED, "reason": "SchemaChangeRefused"}
    tables = [t.model_copy(update=update) if t.name == failed else t for t in tables]
    tables = [t.model_copy(update={"rows": rows}) if t.name in ("shop.t0001", "shop.t0599") else t for t in tables]
    return with_tables(Status(), tables)


def test_the_failure_of_a_table_outlives_a_late_write_of_the_operator_before(sync: InProcessSync) -> None:
    """That one stood still within its write, and goes on with it after the lease was taken."""
    sync.create()
    first = store(sync)
    first.save(large(sync))
    second = store(sync)
    second.save(large(sync, failed="shop.t0007"))
    with pytest.raises(ApiError) as refused:
        first.save(large(sync, rows=5))
    assert refused.value.conflict
    table = store(sync).status().table("shop.t0007")
    assert table is not None
    assert (table.phase, table.reason) == (TablePhase.FAILED, "SchemaChangeRefused")


@pytest.mark.parametrize("repaired", [False, True])
def test_tables_that_the_status_was_not_written_with_count_as_lost(sync: InProcessSync, repaired: bool) -> None:
    """A late write of the second ConfigMap alone, which the operator of now had not changed; it
    writes it again with its next change."""
    sync.create()
    first = store(sync)
    first.save(large(sync))
    second = store(sync)
    second.save(large(sync, failed="shop.t0007"))
    changed = large(sync).table_status
    late = [t.model_copy(update={"rows": 5}) if t.name == "shop.t0599" else t for t in changed]
    with pytest.raises(ApiError):
        first.save(with_tables(Status(), late))
    if not repaired:
        assert store(sync).status().table_status == ()
        return
    last = large(sync, failed="shop.t0007", rows=9)
    with pytest.raises(ApiError):
        second.save(last)
    second.load()
    second.save(last)
    assert store(sync).status().table_status == last.table_status
