"""Errors of the product: every one has what was found, what was needed and what to do.

    CdcError
     +-- PermanentError    only the user can help: the controller stops and reports `Stalled`
     |    +-- ManifestError  several faults at once
     |    +-- DecodeError  bytes that cannot be read exactly (position, table, column)
     +-- TransientError    a retry may fix it: the controller backs off and tries again
          +-- TableBusyError  of one table: the others go on, and it is tried again later

The class decides alone what the supervisor does; the `Reason` is the word that the user sees in
conditions, exit messages and the documentation.
"""

from __future__ import annotations

import copyreg
import json
import re
from enum import StrEnum
from typing import Any

from cdcsync_core import remedies
from cdcsync_core.quoting import visible


class Reason(StrEnum):
    """The reasons of conditions and exit messages, one meaning each."""

    SPEC_INVALID = "SpecInvalid"
    AUTHENTICATION_FAILED = "AuthenticationFailed"
    PRIVILEGE_MISSING = "PrivilegeMissing"
    BINLOG_DISABLED = "BinlogDisabled"
    BINLOG_FORMAT_NOT_ROW = "BinlogFormatNotRow"
    ROW_IMAGE_NOT_FULL = "RowImageNotFull"
    ROW_METADATA_NOT_FULL = "RowMetadataNotFull"
    LOG_INCOMPLETE = "LogIncomplete"
    CASCADES_NOT_LOGGED = "CascadesNotLogged"
    ENGINE_UNSUPPORTED = "EngineUnsupported"
    SERVER_ID_IN_USE = "ServerIdInUse"
    POSITION_LOST = "PositionLost"
    HISTORY_DIVERGED = "HistoryDiverged"
    SNAPSHOT_HOST_UNFIT = "SnapshotHostUnfit"
    START_UNAVAILABLE = "StartUnavailable"
    SNAPSHOT_OUTLIVES_BINLOG = "SnapshotOutlivesBinlog"
    NO_SUCH_TABLE = "NoSuchTable"
    SIDE_TABLE = "SideTable"
    NO_PRIMARY_KEY = "NoPrimaryKey"
    KEY_NOT_UNIQUE = "KeyNotUnique"
    TYPE_UNSUPPORTED = "TypeUnsupported"
    TABLE_UNREADABLE = "TableUnreadable"
    XA_UNSUPPORTED = "XaUnsupported"
    SCHEMA_CHANGE_REFUSED = "SchemaChangeRefused"
    SCHEMA_CHANGE_PENDING = "SchemaChangePending"
    TABLE_GONE = "TableGone"
    TABLE_EMPTIED = "TableEmptied"
    TRANSACTION_TOO_LARGE = "TransactionTooLarge"
    SINK_CONFLICT = "SinkConflict"
    NO_SUCH_BUCKET = "NoSuchBucket"
    # retried with backoff
    TABLE_BUSY = "TableBusy"
    SOURCE_UNREACHABLE = "SourceUnreachable"
    SINK_UNREACHABLE = "SinkUnreachable"
    SINK_WRITTEN = "SinkWritten"
    DRIVER_UNSCHEDULABLE = "DriverUnschedulable"
    IMAGE_PULL_FAILED = "ImagePullFailed"
    OUT_OF_MEMORY = "OutOfMemory"
    DRIVER_LOST = "DriverLost"
    EXECUTORS_LOST = "ExecutorsLost"
    EXECUTORS_UNSCHEDULABLE = "ExecutorsUnschedulable"
    QUOTA_EXCEEDED = "QuotaExceeded"
    INTERNAL_ERROR = "InternalError"

    @property
    def retried(self) -> bool:
        return self in _RETRIED

    @property
    def revocable(self) -> bool:
        """Whether it is a right that an administrator may take and give back: a password being
        changed, a grant being rewritten."""
        return self in (Reason.AUTHENTICATION_FAILED, Reason.PRIVILEGE_MISSING)


_RETRIED = frozenset(
    {
        Reason.TABLE_BUSY,
        Reason.SOURCE_UNREACHABLE,
        Reason.SINK_UNREACHABLE,
        Reason.SINK_WRITTEN,
        Reason.DRIVER_UNSCHEDULABLE,
        Reason.IMAGE_PULL_FAILED,
        Reason.OUT_OF_MEMORY,
        Reason.DRIVER_LOST,
        Reason.EXECUTORS_LOST,
        Reason.EXECUTORS_UNSCHEDULABLE,
        Reason.QUOTA_EXCEEDED,
        Reason.INTERNAL_ERROR,
    }
)


#: what begins a part of a message
_BORDER = re.compile(r"; (?=(?:needed|remedy): )")
_PARTS = re.compile(r"^(?P<found>.*?)(?:; needed: (?P<needed>.*?))?(?:; remedy: (?P<remedy>.*))?$", re.DOTALL)
#: the end of a remedy for what stopped for good: nothing tries that again by itself
RUN_AGAIN = "then run again (on a cluster: raise spec.restartNonce)"


class CdcError(Exception):
    """A failure in the user's words.

    `found` and `needed` are phrases without a full stop; `remedy` is the statement, grant or
    command that fixes it; `table` is `database.table` where one table is concerned, else empty.
    None of them may hold a secret. Text of others in them is quoted (`cdcsync_core.quoting`);
    whatever comes, no part holds a control character, and none can pass for another part in the
    message.
    """

    #: whether `found` is several messages already, a line each
    composed = False

    def __init__(self, reason: Reason, found: str, *, needed: str = "", remedy: str = "", table: str = "") -> None:
        self.reason = reason
        self.found = "\n".join(map(visible, found.split("\n"))) if self.composed else visible(found)
        self.needed = visible(needed)
        self.remedy = visible(remedy)
        self.table = table
        super().__init__(self.message)

    @property
    def message(self) -> str:
        """One line: `[table: ]found[; needed: ...][; remedy: ...]`; `message_parts` takes it apart
        again."""
        found = f"{visible(self.table)}: {self.found}" if self.table else self.found
        parts = [found if self.composed else _fenced(found)]
        if self.needed:
            parts.append(f"needed: {_fenced(self.needed)}")
        if self.remedy:
            parts.append(f"remedy: {_fenced(self.remedy)}")
        return "; ".join(parts)

    def __reduce__(self) -> tuple[Any, ...]:
        """To a process of the same program: the parts as they are."""
        return copyreg.__newobj__, (type(self), self.message), self.__dict__  # type: ignore[attr-defined]

    def to_json(self) -> str:
        """The form in which a driver's exit and a stopped table travel between processes."""
        return json.dumps(self.to_dict(), ensure_ascii=False)

    def to_dict(self) -> dict[str, Any]:
        return {
            "reason": self.reason.value,
            "found": self.found,
            "needed": self.needed,
            "remedy": self.remedy,
            "table": self.table,
        }


def _fenced(text: str) -> str:
    """What would begin another part of a message does not."""
    return _BORDER.sub(r";\\ ", text)


def message_parts(message: str) -> dict[str, str]:
    """The parts of a message as `CdcError.message` joins them."""
    match = _PARTS.match(message)
    assert match
    return {name: text or "" for name, text in match.groupdict().items()}


class PermanentError(CdcError):
    """Only the user can help; a retry would find the same."""


class TransientError(CdcError):
    """A retry may fix it."""


class TableBusyError(TransientError):
    """`TableBusy`: no other table waits for it, and the controller tries it again by itself."""


class UnlistedError(TransientError):
    """A server answered with an error of a number that is not known: it may concern the
    table at which it was met, or nothing that lasts."""

    def to_dict(self) -> dict[str, Any]:
        return {**super().to_dict(), "unlisted": True}


class ManifestError(PermanentError):
    """The faults of a manifest, a line each in the form of a message: what is quoted in them is the
    author's own text."""

    composed = True


_DECODING = f"correct the cause, then {remedies.RESNAPSHOT}; report it if the server reads the value well"


class DecodeError(PermanentError):
    """Bytes that cannot be read exactly. `what` was found, without the place; position, table,
    column and key say where, as far as that is known; `row` is the value's index among those that
    were read together, -1 where it is not known."""

    def __init__(
        self,
        found: str,
        *,
        needed: str = "",
        table: str = "",
        column: str = "",
        position: str = "",
        key: str = "",
        remedy: str = "",
        row: int = -1,
    ) -> None:
        self.what = found
        self.column = column
        self.position = position
        self.key = key
        self.row = row
        names = (column and f"column {column}", key and f"key {key}", position and f"at {position}")
        where = ", ".join(p for p in names if p)
        super().__init__(
            Reason.TYPE_UNSUPPORTED,
            f"{found} ({where})" if where else found,
            needed=needed,
            remedy=remedy or _DECODING,
            table=table,
        )

    def placed(
        self, *, table: str = "", column: str = "", position: str = "", key: str = "", row: int = -1
    ) -> DecodeError:
        """The same error with the names that it lacks."""
        return DecodeError(
            self.what,
            needed=self.needed,
            table=self.table or table,
            column=self.column or column,
            position=self.position or position,
            key=self.key or key,
            remedy=self.remedy,
            row=self.row if self.row >= 0 else row,
        )


def fail(reason: Reason, found: str, *, needed: str = "", remedy: str = "", table: str = "") -> CdcError:
    """The error of the right family for `reason`, to be raised by the caller."""
    family: type[CdcError] = TransientError if reason.retried else PermanentError
    if reason is Reason.TABLE_BUSY:
        family = TableBusyError
    return family(reason, found, needed=needed, remedy=remedy, table=table)


def from_json(text: str) -> CdcError:
    """The inverse of `CdcError.to_json` (a `DecodeError` comes back as its `PermanentError`)."""
    data = json.loads(text)
    make = UnlistedError if data.get("unlisted") else fail
    return make(
        Reason(data["reason"]),
        data["found"],
        needed=data.get("needed", ""),
        remedy=data.get("remedy", ""),
        table=data.get("table", ""),
    )
