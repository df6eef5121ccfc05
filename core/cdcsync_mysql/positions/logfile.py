"""When a binlog file was begun: the timestamp of its first event, which a RESET and a restored
server change.

Names and sizes of files come again after a RESET, and so do MariaDB's GTIDs (numbers start at 1
again); the second in which the file was begun does not. (It is the one in which the statement that
rotated the binlog began, so it says nothing of the transactions before and behind it.) No statement
shows it, so the file is opened by a dump that is left after its first two packets.

Why it disturbs no other client: the dump has replica id 0 and no UUID, as that of mysqlbinlog, so
the server ends no other dump for it. Sources: MySQL source documentation, "COM_BINLOG_DUMP",
"Format_description_event"; MariaDB knowledge base, "Replication Protocol".
"""

from __future__ import annotations

import struct

import pymysql
from pymysql.constants import COMMAND

from cdcsync_core.errors import CdcError, Reason, fail
from cdcsync_core.positions.lineage import BinlogId
from cdcsync_core.quoting import quoted
from cdcsync_core.remedies import RESNAPSHOT_ALL
from cdcsync_mysql.server import read_facts, refuse_other_server
from cdcsync_mysql.sessions.connection import Source, connect, map_error
from cdcsync_mysql.sessions.protocol import drop, read_payload, send_command

_NON_BLOCKING = 1
_FIRST_EVENT = 4
_FORMAT_DESCRIPTION = 15
#: 29: the system has no such file; 1236: the server cannot read its binlog from there
_CANNOT_BE_OPENED = (29, 1236)
#: timestamp and type of an event, after the packet's status byte
_EVENT_HEAD = struct.Struct("<xIB")


def file_created_at(source: Source, file: str, binlog: BinlogId | None = None) -> int:
    """Seconds since 1970 at which `file` was begun; raises PositionLost where it cannot be opened
    or the source has another binlog than `binlog` now, PrivilegeMissing."""
    doing = f"reading the head of {file}"
    with connect(source) as connection:
        if binlog is not None:
            refuse_other_server(read_facts(connection), binlog)
        try:
            with connection.cursor() as cursor:
                cursor.execute("SET @master_binlog_checksum = 'NONE', @source_binlog_checksum = 'NONE'")
                cursor.execute("SET @mariadb_slave_capability = 4")
            request = struct.pack("<IHI", _FIRST_EVENT, _NON_BLOCKING, 0) + file.encode()
            send_command(connection, COMMAND.COM_BINLOG_DUMP, request)
            for _ in range(3):
                timestamp, kind = _EVENT_HEAD.unpack_from(read_payload(connection))
                if kind == _FORMAT_DESCRIPTION:
                    return int(timestamp)
        except (pymysql.MySQLError, OSError, struct.error) as e:
            if isinstance(e, pymysql.MySQLError) and e.args[:1] and e.args[0] in _CANNOT_BE_OPENED:
                raise _gone(f"{doing}: {quoted(str(e.args[-1]))} ({e.args[0]})") from e
            raise map_error(e, doing) from e
        finally:
            # the dump goes on until the socket is closed
            drop(connection)
    raise _gone(f"{doing}: it has no format description")


def _gone(found: str) -> CdcError:
    return fail(
        Reason.POSITION_LOST, found, needed="a binlog file that the server lists and has", remedy=RESNAPSHOT_ALL
    )
