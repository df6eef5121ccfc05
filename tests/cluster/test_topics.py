"""Kafka topics on the node: every change of a table, exactly once, also after its driver was
killed."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from cdcsync_core.runs.status import Status
from cdcsync_kube.client import Object
from support.event_consumer import CheckingConsumer
from support.kafka import KafkaBroker
from support.node import ACCESS_KEY, REGION, SECRET_KEY, Node, wait_until
from support.node_sync import DRIVER, PASSWORD, make_namespace, make_secret, make_sync, small, source_part
from support.servers import Server
from support.sync_process import GRANTS
from support.topic_events import debezium_events

pytestmark = pytest.mark.timeout(900)

NAME = "topics"
PATH = f"/apis/cdcsync.io/v1alpha1/namespaces/{NAME}/cdcsyncs/{NAME}"


@pytest.fixture
def broker(node: Node, tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaBroker]:
    """One that pods reach."""
    made = KafkaBroker(tmp_path_factory.mktemp("broker"), address=node.address).start()
    yield made
    made.kill()


def test_every_change_is_a_record_once(node: Node, source: Server, store: str, broker: KafkaBroker) -> None:
    database = source.create_database()
    source.run(
        "CREATE TABLE t (id INT PRIMARY KEY, n INT)", "INSERT INTO t SELECT seq, 0 FROM seq_1_to_500", db=database
    )
    source.create_user("cdc", PASSWORD, GRANTS[source.flavor])
    make_namespace(node, NAME)
    make_secret(node, NAME, "source", {"username": "cdc", "password": PASSWORD})
    make_secret(node, NAME, "lake", {"AWS_ACCESS_KEY_ID": ACCESS_KEY, "AWS_SECRET_ACCESS_KEY": SECRET_KEY})
    make_sync(node, NAME, NAME, _spec(node, source, store, broker, database))

    def status() -> Status:
        return Status.model_validate(node.api.get(PATH).get("status") or {})

    def described() -> str:
        shown = node.kubectl("-n", NAME, "describe", "pods", "cdcsync")
        return shown + node.kubectl("-n", NAME, "logs", "-l", f"cdcsync.io/sync={NAME}", "--tail=80", "--prefix")

    def flows() -> bool:
        return status().condition("Ready").status == "True"

    wait_until(flows, 300, "it flows", described)
    change(source, database, 1)
    (driver,) = node.pods(NAME, f"{DRIVER},cdcsync.io/kind=stream")
    node.kill(NAME, driver["metadata"]["name"])
    change(source, database, 2)
    rows = {(k,): {"id": k, "n": n} for k, n in source.query("SELECT id, n FROM t", db=database)}
    topic = f"{NAME}.{database}.t"
    wait_until(lambda: consumed(broker, topic).rows == rows, 300, "the topic has all changes", described)
    assert consumed(broker, topic).faults == []
    node.api.delete(PATH)


def change(server: Server, database: str, n: int) -> None:
    """A transaction for each of a few keys."""
    for key in range(1, 11):
        server.run(f"UPDATE t SET n = {n} WHERE id = {key}", db=database)
    server.run(f"DELETE FROM t WHERE id = {20 + n}", f"INSERT INTO t VALUES ({1000 + n}, {n})", db=database)


def consumed(broker: KafkaBroker, topic: str) -> CheckingConsumer:
    """What a reader of committed records makes of them."""
    records = ((json.loads(r.key or b""), json.loads(r.value) if r.value else None) for r in broker.read(topic))
    return CheckingConsumer(("id",)).take(debezium_events(records))


def _spec(node: Node, source: Server, store: str, broker: KafkaBroker, database: str) -> Object:
    staging = {
        "path": f"s3://lake/{NAME}",
        "credentialsSecretRef": {"name": "lake"},
        "options": {"endpoint": store, "region": REGION},
    }
    return {
        "source": source_part(node, source) | {"heartbeatInterval": "1s"},
        "tables": {"include": [rf"{database}\..*"]},
        "sink": {
            "kafka": {
                "bootstrapServers": broker.outside,
                "tls": {"mode": "disabled"},
                "topic": "{name}.{database}.{table}",
                "staging": staging,
            }
        },
        "driver": {"memory": "768Mi", "podTemplate": small("driver")},
        "autoRestart": {"backoff": {"initial": "1s", "max": "5s"}},
    }
