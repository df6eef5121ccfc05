"""Makes the files beside it: what an earlier release left behind.

Run it with the sources and the tests' helpers of that release first in the path, here those of
commit 3a327baf in the folder EARLIER:

    PYTHONPATH=EARLIER/core:EARLIER/operator:EARLIER/spark_app:EARLIER/demo:EARLIER/tests \\
      python tests/data/earlier_release/make.py

`local.tar.xz` holds a MariaDB server's binlog files and two syncs of it into Delta tables (lake and
state folder): `shop` has streamed, followed an ALTER, and has an idle table; `half` was killed
between two waves of its snapshot. `source.sql` has the statements that made the source's rows, so
that a test can make the same rows without logging them, and put the binlog files in place.
`states.json` has what the same tables' state is in other targets: the property of an Iceberg table,
the row in a SQL database, the record of a state topic. `cluster.json` is a streaming sync on a
cluster: the resource with its status, and the ConfigMaps of its runs.
"""

from __future__ import annotations

import json
import os
import subprocess
import tarfile
import tempfile
from pathlib import Path
from typing import Any

import cdcsync_core
from cdcsync_core.runs.run import RunKind
from support.apiserver import api_server
from support.in_process_sync import InProcessSync
from support.kafka import KafkaBroker
from support.servers import VARIANTS, Server
from support.sync_process import Gate, Sync

HERE = Path(__file__).parent
SERVER_ID = 71
ACCOUNT = ("both", "of the tests")
EXCLUDE = {"overrides": [{"table": "shop.items", "columns": {"exclude": ["secret"]}}]}


def statements(part: str) -> list[str]:
    """The statements of a part of `source.sql`."""
    text = (HERE / "source.sql").read_text(encoding="utf-8").split(f"-- part: {part}\n")[1].split("-- part: ")[0]
    return [s.strip() for s in text.split(";\n") if s.strip()]


def make_all(folder: Path) -> None:
    server = VARIANTS["mariadb1011"].start(folder, server_id=SERVER_ID)
    try:
        server.run(*statements("before the snapshot"))
        states = {
            "iceberg": iceberg_state(server, folder),
            "sql": sql_state(server, folder),
            "kafka": kafka_record(server, folder),
        }
        (HERE / "states.json").write_text(json.dumps(states, indent=1) + "\n", encoding="utf-8")
        with Sync(server, [r"shop\..*"], folder / "shop", "shop", {"tables": EXCLUDE}) as shop:
            shop.run_to_completion()
            server.run(*statements("first changes"))
            shop.run_to_completion()
        small = {"snapshot": {"chunkSize": 20, "parallelism": 1}}
        with Sync(server, [r"half\..*"], folder / "half", "half", small) as half:
            half.start("snapshot", Gate("wave-committed", action="stop"))
            half.wait_fired()
            half.kill_all()
        pack(server, folder)
    finally:
        server.remove()
    make_cluster(folder)


def pack(server: Server, folder: Path) -> None:
    server.stop()
    with tarfile.open(HERE / "local.tar.xz", "w:xz") as archive:
        for file in sorted(server.datadir.glob("binlog.*")):
            archive.add(file, f"binlog/{file.name}")
        for sync in ("shop", "half"):
            archive.add(folder / sync / "lake", f"{sync}/lake")
            archive.add(folder / sync / "state" / f"default.{sync}.yaml", f"{sync}/state/default.{sync}.yaml")


def iceberg_state(server: Server, folder: Path) -> Any:
    """The newest metadata of the table, by a catalog in a file of SQLite."""
    warehouse = folder / "iceberg" / "warehouse"
    catalog = {"type": "jdbc", "uri": f"jdbc:sqlite:{folder / 'iceberg' / 'catalog.db'}", "warehouse": str(warehouse)}
    sink = {"iceberg": {"catalog": catalog, "namespace": "lake"}}
    with Sync(server, [r"shop\.idle"], folder / "iceberg", "ice", {"sink": sink}) as sync:
        sync.run_to_completion()
    newest = max(warehouse.rglob("*.metadata.json"), key=lambda path: path.stat().st_mtime)
    return json.loads(newest.read_text(encoding="utf-8"))


def sql_state(server: Server, folder: Path) -> Any:
    """The row of the table of states; the target is another server."""
    (folder / "sql-server").mkdir()
    target = VARIANTS["mariadb1011"].start(folder / "sql-server", server_id=SERVER_ID + 1)
    try:
        for each in (server, target):
            each.create_user(*ACCOUNT)
        address = {"host": target.host, "port": target.port, "credentialsSecretRef": {"name": "source"}}
        spec = {"sink": {"mysql": address | {"database": "copies", "stateDatabase": "copies"}}}
        with Sync(server, [r"shop\.idle"], folder / "sql", "sql", spec, account=ACCOUNT) as sync:
            sync.run_to_completion()
        ((schema, table),) = target.query(
            "SELECT table_schema, table_name FROM information_schema.columns WHERE column_name = 'pending'"
        )
        ((state,),) = target.query(f"SELECT state FROM `{schema}`.`{table}`")
        return json.loads(state)
    finally:
        target.remove()


def kafka_record(server: Server, folder: Path) -> Any:
    """The newest record of the table in the state topic."""
    (folder / "broker").mkdir()
    broker = KafkaBroker(folder / "broker").start()
    try:
        spec = {"sink": {"kafka": {"bootstrapServers": broker.bootstrap}}}
        with Sync(server, [r"shop\.idle"], folder / "kafka", "topics", spec) as sync:
            sync.run_to_completion()
        (topic,) = (t for t in broker.admin().list_topics(timeout=60).topics if "cdcsync" in t)
        values = [json.loads(r.value) for r in broker.read(topic) if r.value]
        return [value for value in values if "state" in value][-1]
    finally:
        broker.stop()


def make_cluster(folder: Path) -> None:
    (folder / "apiserver").mkdir()
    with api_server(folder / "apiserver") as api:
        api.create("/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}})
        sync = InProcessSync(api, "shop").create()
        controller = sync.operator()
        try:
            sync.to_streaming(controller)
            sync.flow(sync.driver(RunKind.STREAM), 400)  # a report that no operator has merged yet
            objects: dict[str, Any] = {
                "cdcsync": api.get(f"{sync.syncs}/shop"),
                "configMaps": list(api.items(f"{sync.base}/configmaps")),
                "pods": list(sync.pods().values()),
            }
        finally:
            controller.close()
    for part in [objects["cdcsync"], *objects["configMaps"], *objects["pods"]]:
        part["metadata"].pop("managedFields", None)
    (HERE / "cluster.json").write_text(json.dumps(objects, indent=1, sort_keys=True) + "\n", encoding="utf-8")


if __name__ == "__main__":
    root = Path(cdcsync_core.__file__).parents[2]
    commit = subprocess.run(["git", "rev-parse", "HEAD"], cwd=root, capture_output=True, text=True, check=True).stdout
    print("sources of", commit.strip(), "from", os.fspath(root))
    with tempfile.TemporaryDirectory() as scratch:
        make_all(Path(scratch))
