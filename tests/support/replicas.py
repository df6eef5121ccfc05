"""Pairs of servers of which one replicates from the other."""

from __future__ import annotations

from cdcsync_demo.embedded import OptionValue
from support.servers import Server

#: of each variant, what its servers need to be promoted
OPTIONS: dict[str, dict[str, OptionValue]] = {
    "mysql97_gtid": {},
    "mariadb1011_loose": {"log_slave_updates": "ON"},
}
_SECONDS = 180.0


def replicate(source: Server, replica: Server) -> None:
    """From the beginning, or from where the replica is."""
    if replica.flavor == "mysql":
        replica.run(
            f"CHANGE REPLICATION SOURCE TO SOURCE_HOST='{source.host}', SOURCE_PORT={source.port}, SOURCE_USER='root',"
            " SOURCE_AUTO_POSITION=1, SOURCE_SSL=0, SOURCE_CONNECT_RETRY=1",
            "START REPLICA",
        )
        return
    replica.run(
        f"CHANGE MASTER TO MASTER_HOST='{source.host}', MASTER_PORT={source.port}, MASTER_USER='root',"
        " MASTER_USE_GTID=slave_pos, MASTER_CONNECT_RETRY=1, MASTER_SSL=0, MASTER_SSL_VERIFY_SERVER_CERT=0",
        "START SLAVE",
    )


def await_replica(source: Server, replica: Server, seconds: float = _SECONDS) -> None:
    """Until the replica has applied all that the source has now."""
    if replica.flavor == "mysql":
        ours = source.query("SELECT @@GLOBAL.gtid_executed")[0][0]
        assert replica.query("SELECT WAIT_FOR_EXECUTED_GTID_SET(%s, %s)", ours, int(seconds)) == [(0,)]
    else:
        end = source.query("SELECT @@gtid_binlog_pos")[0][0]
        assert replica.query("SELECT MASTER_GTID_WAIT(%s, %s)", end, seconds) == [(0,)]


def promote(replica: Server) -> None:
    word = "REPLICA" if replica.flavor == "mysql" else "SLAVE"
    replica.run(f"STOP {word}", f"RESET {word} ALL")
