"""The options of the public data sources, `mysql_snapshot` and `mysql_binlog`, for PySpark users
without the operator.

| option | means | default |
|---|---|---|
| host, port | the server | port 3306 |
| usernameFile, passwordFile | files with the credentials; an option's value is shown in plans | |
| tlsMode | disabled, required, verify-ca, verify-identity | see below |
| tlsCa, tlsCert, tlsKey | PEM files | |
| tlsAllowUnverified | true: an unverified server may get the password itself | see below |
| table | database.table | |
| excludeColumns | comma separated names | |

`tlsMode` is verify-identity with tlsCa, else required, on loopback disabled. `tlsAllowUnverified`
is true on loopback only.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import get_args

from cdcsync_core.errors import CdcError, Reason, fail
from cdcsync_core.resource.connection_spec import is_loopback
from cdcsync_core.tables.capture import Capture
from cdcsync_core.tables.source_table import TableId
from cdcsync_mysql.reading.catalog import read_table
from cdcsync_mysql.sessions.connection import Source, Tls, connect
from cdcsync_mysql.sessions.source import TlsMode


@dataclass(frozen=True)
class SourceOptions:
    """Options, checked; keys are case-insensitive as Spark gives them."""

    source: Source
    table: TableId
    excluded: frozenset[str]

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> SourceOptions:
        """Raises SpecInvalid naming the option."""
        database, separator, name = required(options, "table").partition(".")
        if not (database and separator and name):
            raise _invalid("table", required(options, "table"), "database.table")
        host = required(options, "host")
        ca, cert, key = (Path(options[k]) if k in options else None for k in ("tlsCa", "tlsCert", "tlsKey"))
        unverified = is_loopback(host) or _flag(options, "tlsAllowUnverified")
        tls = Tls(_tls_mode(options, host), ca, cert, key, allow_unverified=unverified)
        source = Source(
            host,
            whole(options, "port", 3306),
            Path(required(options, "usernameFile")),
            Path(required(options, "passwordFile")),
            tls,
        )
        excluded = frozenset(c.strip() for c in options.get("excludeColumns", "").split(",") if c.strip())
        return cls(source, TableId(database, name), excluded)

    def read_definition(self) -> Capture:
        with connect(self.source) as connection:
            return read_table(connection, self.table, self.excluded)


def _tls_mode(options: Mapping[str, str], host: str) -> TlsMode:
    encrypted = "disabled" if is_loopback(host) else "required"
    given = options.get("tlsMode", "verify-identity" if "tlsCa" in options else encrypted)
    modes: tuple[TlsMode, ...] = get_args(TlsMode)
    if given not in modes:
        raise _invalid("tlsMode", given, " | ".join(modes))
    return modes[modes.index(given)]


def required(options: Mapping[str, str], name: str) -> str:
    value = options.get(name)
    if not value:
        raise _invalid(name, "nothing", "a value")
    return str(value)


def _flag(options: Mapping[str, str], name: str) -> bool:
    value = str(options.get(name, "false")).lower()
    if value not in ("true", "false"):
        raise _invalid(name, value, "true | false")
    return value == "true"


def whole(options: Mapping[str, str], name: str, default: int) -> int:
    value = str(options.get(name, default))
    if not value.isdigit():
        raise _invalid(name, value, "a whole number")
    return int(value)


def _invalid(option: str, found: str, needed: str) -> CdcError:
    return fail(
        Reason.SPEC_INVALID,
        f"option {option}: {found}",
        needed=needed,
        remedy=f'.option("{option}", ...) on the reader',
    )
