"""The GTIDs of transactions as their server names them."""

from __future__ import annotations

from typing import Any

from support.servers import Connection, Server


def run_with_gtids(server: Server, *statements: str, db: str) -> list[str | None]:
    """Runs each as a transaction of its own, while nothing else is written; its GTID, None where
    the server has none."""
    if server.flavor == "mariadb":
        with server.connect(db=db) as connection:
            return [last_gtid(connection, statement) for statement in statements]
    found = list[str | None]()
    for statement in statements:
        ((before,),) = server.query("SELECT @@global.gtid_executed")
        server.run(statement, db=db)
        ((gtid,),) = server.query("SELECT GTID_SUBTRACT(@@global.gtid_executed, %s)", before)
        found.append(gtid or None)
    return found


def last_gtid(connection: Connection, *statements: str) -> str:
    """Runs them; MariaDB's GTID of the last transaction of the session."""
    with connection.cursor() as cursor:
        for statement in (*statements, "SELECT @@last_gtid"):
            cursor.execute(statement)
        row: Any = cursor.fetchone()
        return str(row[0])
