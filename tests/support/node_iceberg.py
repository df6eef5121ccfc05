"""A sync to Iceberg tables on the node: their files are in the bucket, and a REST catalog of this
machine has the tables."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
from pyiceberg.catalog.rest import RestCatalog

from cdcsync_kube.client import Object
from support.iceberg_catalog import IcebergCatalog
from support.node import ACCESS_KEY, REGION, SECRET_KEY, Node
from support.node_sync import NodeSync
from support.servers import Server
from support.workload import Pace

_PLAIN = {pa.large_string(): pa.string(), pa.large_binary(): pa.binary()}


def store_settings(store: str) -> dict[str, str]:
    """The bucket and its account, as Iceberg's clients name them."""
    return {
        "s3.endpoint": store,
        "client.region": REGION,
        "s3.access-key-id": ACCESS_KEY,
        "s3.secret-access-key": SECRET_KEY,
    }


def node_catalog(folder: Path, node: Node, store: str) -> IcebergCatalog:
    """One that pods reach, and whose metadata are in the bucket."""
    settings: dict[str, Any] = {"io-impl": "SignedStoreIO", **store_settings(store)}
    return IcebergCatalog(folder, "s3://lake/iceberg", address=node.address, **settings)


class IcebergNodeSync(NodeSync):
    """Its tables are in the namespace of its database."""

    def __init__(
        self, node: Node, server: Server, store: str, name: str, pace: Pace, executors: int, catalog: IcebergCatalog
    ) -> None:
        super().__init__(node, server, store, name, pace, executors)
        self.catalog = catalog

    def _sink(self) -> Object:
        return {"iceberg": {"catalog": {"uri": self.catalog.uri}, **self._store()}}

    def target(self, table: str) -> Any:
        """Read by PyIceberg."""
        reader = RestCatalog("rest", uri=self.catalog.uri, **store_settings(self.store))
        rows = reader.load_table((self.database, table)).scan().to_arrow()
        return rows.cast(pa.schema([pa.field(f.name, _PLAIN.get(f.type, f.type)) for f in rows.schema]))
