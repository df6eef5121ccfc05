"""One transaction of the binlog while it is read: its rows, what savepoints do to them, its
statements.

Both readers of transactions collect into it: the assembler, for all tables that flow, and the
search for the XA PREPARE of a commit. Savepoints and rollbacks to them drop rows before the end, so
what is here at the end of the transaction is what it did.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from cdcsync_core.errors import PermanentError, Reason
from cdcsync_core.remedies import RESNAPSHOT_ALL
from cdcsync_spark.binlog.assembly.spool import EVENT_BYTES, Spool, Spooled
from cdcsync_spark.wire.binlog import facts
from cdcsync_spark.wire.sql.syntax.text import Statement


@dataclass(slots=True)
class OpenTransaction:
    """`prepared` is the xid of an XA PREPARE that ends it, `ended` the XA COMMIT or XA
    ROLLBACK."""

    rows: list[Spooled] = field(default_factory=list)
    savepoints: dict[str, int] = field(default_factory=dict)
    #: rows before this index may be kept when those after it are dropped
    barrier: int = 0
    statements: list[Statement] = field(default_factory=list)
    prepared: str | None = None
    ended: list[facts.XaEnd] = field(default_factory=list)

    @property
    def size(self) -> int:
        """What its rows cost in memory when they are decoded, in bytes."""
        return sum(item.size + EVENT_BYTES for item in self.rows)

    def add(self, event: facts.RowsEvent, spool: Spool) -> None:
        spool.add_to(self.rows, event, self.barrier)

    def set_savepoint(self, savepoint: facts.Savepoint) -> None:
        self.savepoints[savepoint.name.lower()] = self.barrier = len(self.rows)

    def roll_back_to(self, rollback: facts.RollbackTo) -> None:
        """Savepoints are compared without case; only the server knows which
        letters with accents are equal."""
        name, savepoints = rollback.name, self.savepoints
        unclear = len(savepoints) > 1 and not all(n.isascii() for n in (name, *savepoints))
        if name.lower() not in savepoints or unclear:
            raise PermanentError(
                Reason.LOG_INCOMPLETE,
                f"ROLLBACK TO SAVEPOINT {name} after the savepoints {', '.join(savepoints) or '(none)'}",
                needed="one of them, by a name of ASCII letters where there are several",
                remedy=RESNAPSHOT_ALL,
            )
        self.barrier = savepoints[name.lower()]
        del self.rows[self.barrier :]
