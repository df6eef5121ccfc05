"""The types of binlog events by their names, as both servers number them: MySQL
`libs/mysql/binlog/event/binlog_event.h`, MariaDB `sql/log_event.h` (its own from 160 on). Amazon
Aurora has one of its own: asterisks in front of a transaction's BEGIN."""

from __future__ import annotations

from enum import IntEnum


class EventType(IntEnum):
    """A decoder compares with `value`, a plain number: it does so for every event."""

    QUERY = 2
    STOP = 3
    ROTATE = 4
    INTVAR = 5
    APPEND_BLOCK = 9
    RAND = 13
    USER_VAR = 14
    FORMAT_DESCRIPTION = 15
    XID = 16
    BEGIN_LOAD_QUERY = 17
    EXECUTE_LOAD_QUERY = 18
    TABLE_MAP = 19
    WRITE_ROWS_V1 = 23
    UPDATE_ROWS_V1 = 24
    DELETE_ROWS_V1 = 25
    INCIDENT = 26
    HEARTBEAT = 27
    IGNORABLE = 28
    ROWS_QUERY = 29
    WRITE_ROWS = 30
    UPDATE_ROWS = 31
    DELETE_ROWS = 32
    GTID = 33
    ANONYMOUS_GTID = 34
    PREVIOUS_GTIDS = 35
    TRANSACTION_CONTEXT = 36
    VIEW_CHANGE = 37
    XA_PREPARE = 38
    PARTIAL_UPDATE_ROWS = 39
    TRANSACTION_PAYLOAD = 40
    HEARTBEAT_V2 = 41
    GTID_TAGGED = 42
    AURORA_PADDING = 100
    ANNOTATE_ROWS = 160
    BINLOG_CHECKPOINT = 161
    MARIADB_GTID = 162
    GTID_LIST = 163
    START_ENCRYPTION = 164
    QUERY_COMPRESSED = 165
    WRITE_ROWS_COMPRESSED_V1 = 166
    UPDATE_ROWS_COMPRESSED_V1 = 167
    DELETE_ROWS_COMPRESSED_V1 = 168
    WRITE_ROWS_COMPRESSED = 169
    UPDATE_ROWS_COMPRESSED = 170
    DELETE_ROWS_COMPRESSED = 171
    PARTIAL_ROW_DATA = 172


def _numbers(*types: EventType) -> frozenset[int]:
    return frozenset(t.value for t in types)


#: events that are passed over; after START_ENCRYPTION the dump is sent decrypted, as its checksums
#: prove
WITHOUT_FACTS = _numbers(
    EventType.INTVAR,
    EventType.APPEND_BLOCK,
    EventType.RAND,
    EventType.USER_VAR,
    EventType.BEGIN_LOAD_QUERY,
    EventType.IGNORABLE,
    EventType.ROWS_QUERY,
    EventType.PREVIOUS_GTIDS,
    EventType.TRANSACTION_CONTEXT,
    EventType.VIEW_CHANGE,
    EventType.ANNOTATE_ROWS,
    EventType.BINLOG_CHECKPOINT,
    EventType.START_ENCRYPTION,
)
#: beside rows events, what a compressed transaction may hold
IN_PAYLOAD = _numbers(
    EventType.QUERY,
    EventType.INTVAR,
    EventType.RAND,
    EventType.USER_VAR,
    EventType.XID,
    EventType.BEGIN_LOAD_QUERY,
    EventType.APPEND_BLOCK,
    EventType.EXECUTE_LOAD_QUERY,
    EventType.TABLE_MAP,
    EventType.IGNORABLE,
    EventType.ROWS_QUERY,
    EventType.TRANSACTION_CONTEXT,
    EventType.VIEW_CHANGE,
    EventType.XA_PREPARE,
)
