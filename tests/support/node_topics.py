"""One sync of a table to Kafka topics on the node, in a namespace of its own."""

from __future__ import annotations

from dataclasses import dataclass

from cdcsync_core.runs.status import Status
from cdcsync_kube.client import Object
from support.kafka import KafkaBroker
from support.node import ACCESS_KEY, REGION, SECRET_KEY, Node
from support.node_sync import PASSWORD, make_namespace, make_secret, make_sync, small, source_part
from support.servers import Server
from support.sync_process import GRANTS

NAME = "topics"
PATH = f"/apis/cdcsync.io/v1alpha1/namespaces/{NAME}/cdcsyncs/{NAME}"


@dataclass(frozen=True)
class TopicSync:
    """Copies the table `t` of `database`; its snapshot is staged in the bucket of `store`."""

    node: Node
    source: Server
    store: str
    broker: KafkaBroker
    database: str

    @property
    def topic(self) -> str:
        return f"{NAME}.{self.database}.t"

    def create(self) -> None:
        """The table and the sync; nothing is waited for."""
        fill = "INSERT INTO t SELECT seq, 0 FROM seq_1_to_500"
        self.source.run("CREATE TABLE t (id INT PRIMARY KEY, n INT)", fill, db=self.database)
        self.source.create_user("cdc", PASSWORD, GRANTS[self.source.flavor])
        make_namespace(self.node, NAME)
        make_secret(self.node, NAME, "source", {"username": "cdc", "password": PASSWORD})
        keys = {"AWS_ACCESS_KEY_ID": ACCESS_KEY, "AWS_SECRET_ACCESS_KEY": SECRET_KEY}
        make_secret(self.node, NAME, "lake", keys)
        make_sync(self.node, NAME, NAME, self._spec())

    def _spec(self) -> Object:
        staging = {
            "path": f"s3://lake/{NAME}",
            "credentialsSecretRef": {"name": "lake"},
            "options": {"endpoint": self.store, "region": REGION},
        }
        return {
            "source": source_part(self.node, self.source) | {"heartbeatInterval": "1s"},
            "tables": {"include": [rf"{self.database}\..*"]},
            "sink": {
                "kafka": {
                    "bootstrapServers": self.broker.outside,
                    "tls": {"mode": "disabled"},
                    "topic": "{name}.{database}.{table}",
                    "staging": staging,
                }
            },
            "driver": {"memory": "768Mi", "podTemplate": small("driver")},
            "autoRestart": {"backoff": {"initial": "1s", "max": "5s"}},
        }

    @property
    def flows(self) -> bool:
        status = Status.model_validate(self.node.api.get(PATH).get("status") or {})
        return status.condition("Ready").status == "True"

    def describe(self) -> str:
        shown = self.node.kubectl("-n", NAME, "describe", "pods", "cdcsync")
        selector = f"cdcsync.io/sync={NAME}"
        return shown + self.node.kubectl("-n", NAME, "logs", "-l", selector, "--tail=80", "--prefix")
