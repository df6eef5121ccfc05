"""A lake and a status of the version with state 1 go on on the node (R4): nothing is reread,
and the rows are the source's.

The sync is created paused, gets the recorded status as its own, and is set to run: as an operator
finds it that takes the place of the one before.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.fs as pafs
import pytest
import yaml
from deltalake import DeltaTable

from cdcsync_core.status import Status
from cdcsync_kube.client import Object
from support import state_v1
from support.lake import rows_of
from support.node import ACCESS_KEY, REGION, SECRET_KEY, Node, storage_options, wait_until
from support.node_sync import PASSWORD, make_secret, make_sync, small, source_part
from support.servers import VARIANTS, Server
from support.sync_process import GRANTS

pytestmark = [pytest.mark.long, pytest.mark.timeout(1200)]

#: the lake belongs to the sync of this namespace and name
NAMESPACE, NAME = "default", "shop"
SYNCS = f"/apis/cdcsync.io/v1alpha1/namespaces/{NAMESPACE}/cdcsyncs"
COLUMNS = {"orders": ["id", "word", "at", "amount"], "items": ["word", "number", "kind"], "idle": ["id", "doc", "code"]}
KEPT = ("splits", "rows", "nonce", "finished")


@pytest.fixture
def recorded_source(tmp_path: Path, node: Node) -> Iterator[Server]:
    server = VARIANTS["mariadb1011"].start(tmp_path / "server", bind_address="0.0.0.0", server_id=state_v1.SERVER_ID)
    state_v1.become_the_source(server)
    server.create_user("cdc", PASSWORD, GRANTS[server.flavor])
    yield server
    server.remove()


def _filesystem(store: str) -> pafs.S3FileSystem:
    return pafs.S3FileSystem(
        access_key=ACCESS_KEY, secret_key=SECRET_KEY, region=REGION, scheme="http",
        endpoint_override=store.removeprefix("http://"),
    )  # fmt: skip


def _upload(folder: Path, store: str) -> None:
    pafs.copy_files(str(folder), "lake/state-v1", destination_filesystem=_filesystem(store))


def _states(store: str, table: str) -> list[dict[str, Any]]:
    """The state of each own commit, oldest first."""
    lake = _filesystem(store)
    found = lake.get_file_info(pafs.FileSelector(f"lake/state-v1/shop/{table}/_delta_log"))
    entries = sorted(f.path for f in found if f.path.endswith(".json"))
    lines = [json.loads(lake.open_input_stream(path).readall().splitlines()[0]) for path in entries]
    return [json.loads(line["commitInfo"]["cdcsync"]) for line in lines if "cdcsync" in line.get("commitInfo", {})]


def _spec(node: Node, server: Server, store: str) -> Object:
    delta = {"path": "s3://lake/state-v1", "credentialsSecretRef": {"name": "lake-v1"}}
    return {
        "state": "paused",
        "source": source_part(node, server) | {"credentialsSecretRef": {"name": "source-v1"}},
        "tables": {
            "include": [r"shop\..*"],
            "overrides": [{"table": "shop.items", "columns": {"exclude": ["secret"]}}],
        },
        "sink": {"delta": delta | {"options": {"endpoint": store, "region": REGION}}},
        "driver": {"memory": "768Mi", "podTemplate": small("driver")},
        "executors": {"instances": 1, "memory": "512Mi", "podTemplate": small("executor")},
    }


def _status(node: Node) -> Status:
    return Status.model_validate(node.api.get(f"{SYNCS}/{NAME}").get("status") or {})


def _take_over(node: Node, status: Object) -> None:
    """The status as the operator before wrote it."""
    wait_until(lambda: _status(node).phase == "Paused", 120, "the sync is paused", node.operator_log)

    def write() -> bool:
        found = node.api.get(f"{SYNCS}/{NAME}")
        node.api.replace(f"{SYNCS}/{NAME}/status", found | {"status": status})
        return True

    wait_until(write, 60, "the status is written")


def _source_rows(server: Server, table: str, schema: pa.Schema) -> pa.Table:
    rows = server.query(f"SELECT {', '.join(COLUMNS[table])} FROM shop.{table}")
    return pa.Table.from_pylist([dict(zip(COLUMNS[table], row, strict=True)) for row in rows]).cast(schema)


def test_a_sync_of_the_version_before_goes_on(node: Node, recorded_source: Server, store: str, tmp_path: Path) -> None:
    state_v1.extract("shop", tmp_path / "shop")
    _upload(tmp_path / "shop" / "lake", store)
    recorded = yaml.safe_load((tmp_path / "shop" / "state" / "default.shop.yaml").read_text(encoding="utf-8"))["status"]
    before = {table: _states(store, table)[-1] for table in COLUMNS}
    make_secret(node, NAMESPACE, "source-v1", {"username": "cdc", "password": PASSWORD})
    make_secret(node, NAMESPACE, "lake-v1", {"AWS_ACCESS_KEY_ID": ACCESS_KEY, "AWS_SECRET_ACCESS_KEY": SECRET_KEY})
    make_sync(node, NAMESPACE, NAME, _spec(node, recorded_source, store))
    try:
        _take_over(node, recorded)
        node.api.merge(f"{SYNCS}/{NAME}", {"spec": {"state": "running"}})
        recorded_source.run(*state_v1.statements("changes for the next version"))

        def is_equal() -> bool:
            status = _status(node)
            assert status.runs.snapshot is None, "nothing is reread"
            for table, names in COLUMNS.items():
                uri = f"s3://lake/state-v1/shop/{table}"
                target = rows_of(DeltaTable(uri, storage_options=storage_options(store))).select(names)
                keys = [(name, "ascending") for name in names[:2]]
                wanted = _source_rows(recorded_source, table, target.schema)
                if not target.sort_by(keys).equals(wanted.sort_by(keys)):
                    return False
            return status.condition("Ready").status == "True"

        wait_until(is_equal, 300, "the rows are the source's", lambda: f"{_status(node)!r}\n{node.operator_log()}")
        for table, state in before.items():
            newest = _states(store, table)[-1]
            assert (state["v"], newest["epoch"] > state["epoch"]) == (1, True)
            assert [newest[k] for k in KEPT] == [state[k] for k in KEPT], "the snapshot is the previous one"
    finally:
        node.api.delete(f"{SYNCS}/{NAME}")
