"""What a target database's errors mean to the product, whichever server it is."""

from __future__ import annotations

from enum import StrEnum

from cdcsync_core.errors import RUN_AGAIN, CdcError, Reason, UnlistedError, fail
from cdcsync_core.quoting import quoted


class Fault(StrEnum):
    """What the server refuses a statement for."""

    FULL = "full"
    READ_ONLY = "read only"
    REPLICA = "replica"
    LOCKED = "locked"
    RIGHTS = "rights"
    VALUE = "value"
    CONSTRAINT = "constraint"
    GONE = "gone"
    DEPENDENT = "dependent"
    TOO_LARGE = "too large"
    SHAPE = "shape"
    LOGIN = "login"
    UNKNOWN = "unknown"


_NEEDED: dict[Fault, tuple[Reason, str, str]] = {
    Fault.FULL: (Reason.SINK_UNREACHABLE, "room for the rows", "give the server room; it is tried again"),
    Fault.READ_ONLY: (
        Reason.SINK_UNREACHABLE,
        "a server that takes writes",
        "name the primary, or end its read-only mode; it is tried again",
    ),
    Fault.REPLICA: (
        Reason.SINK_UNREACHABLE,
        "a server that applies no other server's changes, which would not get to that one",
        "name the primary, or stop the replication of this one; it is tried again",
    ),
    Fault.LOCKED: (
        Reason.TABLE_BUSY,
        "rows and tables that no other session holds",
        "end the session that holds them; it is tried again",
    ),
    Fault.RIGHTS: (Reason.PRIVILEGE_MISSING, "the privileges that docs/sql.md lists", f"grant them, {RUN_AGAIN}"),
    Fault.VALUE: (
        Reason.SINK_CONFLICT,
        "columns that take every value of the source's",
        "see the column that the message names; a resnapshot creates the table again",
    ),
    Fault.CONSTRAINT: (
        Reason.SINK_CONFLICT,
        "a target without constraints of its own but its primary key",
        f"drop the constraint that the message names, {RUN_AGAIN}",
    ),
    Fault.GONE: (
        Reason.SINK_CONFLICT,
        "the table as this sync has left it",
        "keep other programs away from it, and resnapshot the table",
    ),
    Fault.DEPENDENT: (
        Reason.SINK_CONFLICT,
        "a target that no other object depends on, because a new table takes its place",
        f"drop what the message names and create it again afterwards, {RUN_AGAIN}",
    ),
    Fault.TOO_LARGE: (
        Reason.SINK_CONFLICT,
        "a server that takes the largest row in one statement",
        f"set max_allowed_packet above the largest row, {RUN_AGAIN}",
    ),
    Fault.SHAPE: (
        Reason.TYPE_UNSUPPORTED,
        "columns and keys within the bounds of the target's tables and indexes, and names that it takes",
        f"leave columns out (tables.overrides[].columns) or the table (tables.exclude), {RUN_AGAIN}",
    ),
    Fault.LOGIN: (Reason.AUTHENTICATION_FAILED, "an account that may log in", f"mend the Secret, {RUN_AGAIN}"),
    Fault.UNKNOWN: (Reason.SINK_UNREACHABLE, "a server that takes the statement", "see the message; it is tried again"),
}


def fault_error(fault: Fault, address: str, message: str, code: object) -> CdcError:
    """The product's error; `message` is the server's."""
    reason, needed, remedy = _NEEDED[fault]
    make = UnlistedError if fault is Fault.UNKNOWN else fail
    return make(reason, f"the database at {address} refuses: {quoted(message)} ({code})", needed=needed, remedy=remedy)
