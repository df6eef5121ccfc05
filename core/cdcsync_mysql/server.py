"""Facts about the server that the rest depends on, read once per connection.

`log` names the binlog that positions belong to (rule R6): MySQL's `server_uuid` is unique; MariaDB
has none, so its `server_id` stands there and the GTID position beside each offset proves the rest.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from cdcsync_core.positions.lineage import BinlogId, Lineage
from cdcsync_core.positions.position import other_binlog
from cdcsync_mysql.rds import retention_seconds
from cdcsync_mysql.sessions.connection import Connection, fetch
from cdcsync_mysql.sessions.version import SUPPORTED, TESTED, Flavor, flavor_of, parse_version


@dataclass(frozen=True)
class ServerFacts:
    """`server_uuid` is MySQL's, else empty; `gtid`: MySQL with gtid_mode=ON."""

    flavor: Flavor
    version: str
    server_id: int
    server_uuid: str = ""
    gtid: bool = False

    @property
    def numbers(self) -> tuple[int, ...]:
        return parse_version(self.version)

    @property
    def log(self) -> BinlogId:
        return f"mysql:{self.server_uuid}" if self.flavor == "mysql" else f"mariadb:{self.server_id}"

    @property
    def lineage(self) -> Lineage:
        """The history of the binlog that is read from this server."""
        return Lineage.of(self.log)

    @property
    def tested(self) -> bool:
        return self.numbers[:2] in TESTED[self.flavor]

    @property
    def supported(self) -> bool:
        return self.numbers[:2] >= SUPPORTED[self.flavor]

    def to_dict(self) -> dict[str, Any]:
        """`status.source`."""
        data: dict[str, Any] = {"flavor": self.flavor, "version": self.version, "serverId": self.server_id}
        return data | ({"serverUuid": self.server_uuid} if self.server_uuid else {}) | {"gtid": self.gtid}


def read_facts(connection: Connection) -> ServerFacts:
    """Raises CdcError only for a broken connection."""
    variables = global_variables(connection, "version", "server_id", "server_uuid", "gtid_mode")
    printed = variables["version"]
    return ServerFacts(
        flavor=flavor_of(printed),
        version=".".join(str(n) for n in parse_version(printed)),
        server_id=int(variables["server_id"]),
        server_uuid=variables.get("server_uuid", ""),
        gtid=variables.get("gtid_mode", "").upper() == "ON",
    )


def refuse_other_server(facts: ServerFacts, binlog: BinlogId) -> None:
    """Raises PositionLost where a name leads to another server than before: what it says would be
    taken for a place in `binlog`."""
    if facts.log != binlog:
        raise other_binlog(facts.log, binlog)


def global_variables(connection: Connection, *names: str) -> dict[str, str]:
    """The global values of those variables that the server knows, names in lower case."""
    rows = fetch(connection, "SHOW GLOBAL VARIABLES WHERE Variable_name IN %s", (names,))
    return {str(name).lower(): str(value) for name, value in rows}


def log_retention_seconds(connection: Connection) -> float:
    """How long the server keeps its binlog; 0 for as long as it lives."""
    rds = retention_seconds(connection)
    if rds is not None:
        return rds
    variables = global_variables(
        connection, "binlog_expire_logs_seconds", "expire_logs_days", "binlog_expire_logs_auto_purge"
    )
    if variables.get("binlog_expire_logs_auto_purge", "ON") == "OFF":
        return 0.0
    seconds = float(variables.get("binlog_expire_logs_seconds") or 0)
    return seconds or float(variables.get("expire_logs_days") or 0) * 86400
