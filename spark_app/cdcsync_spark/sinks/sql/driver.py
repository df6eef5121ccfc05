"""Tables of a SQL database, as `spec.sink.mysql` and `spec.sink.postgresql` describe them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cdcsync_core.errors import CdcError
from cdcsync_core.resource.connection_spec import is_loopback
from cdcsync_core.resource.sinks.sql_database import MySql as MySqlSection
from cdcsync_core.resource.sinks.sql_database import PostgreSql as PostgreSqlSection
from cdcsync_core.resource.sinks.sql_database import SqlDatabase
from cdcsync_core.runs.sink_check import Checks
from cdcsync_core.tables.source_table import TableId
from cdcsync_mysql.sessions.connection import Tls
from cdcsync_spark.sinks.contract.driver import READER, Role
from cdcsync_spark.sinks.sql.dialects.dialect import ConnectionLost, Dialect, SqlName
from cdcsync_spark.sinks.sql.dialects.login import SqlLogin
from cdcsync_spark.sinks.sql.dialects.mysql import MySqlDialect
from cdcsync_spark.sinks.sql.dialects.postgresql import PostgresDialect
from cdcsync_spark.sinks.sql.target import SqlSink


@dataclass(frozen=True)
class SqlDriver:
    """See `SinkDriver`; `<secrets_dir>/<secret>/<key>` hold the credentials."""

    section: SqlDatabase
    secrets_dir: Path
    sync: str

    def check(self, tables: Sequence[TableId]) -> Checks:
        """Whether the account may log in, and what keeps a table that is there from being ours."""
        sink, errors, warnings = self.open(READER), list[CdcError](), tuple[str, ...]()
        try:
            session = sink.dialect.open()
        except CdcError as error:
            return Checks(errors=(error,))
        try:
            warnings = tuple(sink.dialect.unseen(session))
            places = [sink.target(table).place for table in tables]
            sink.dialect.refuse_server(session, [sink.dialect.state_schema, *(p.main.schema for p in places)])
            targets = defaultdict[str, set[str]](set)
            for place in places:
                targets[place.main.schema].add(place.main.table)
            references = {schema: sink.dialect.references(session, schema, names) for schema, names in targets.items()}
            holders = dict[SqlName, TableId]()
            for place in places:
                try:
                    place.refuse_bookkeeping()
                    place.refuse_unusable(session)
                    place.refuse_referenced(references[place.main.schema])
                    place.refuse_other(str(holders.setdefault(place.main, place.table)))
                except CdcError as error:
                    errors.append(error)
        except CdcError as error:
            errors.append(error)
        except ConnectionLost as lost:
            errors.append(self._login().unreachable(str(lost)))
        finally:
            session.close()
        return Checks(f"{sink.dialect.address} takes the account", errors=tuple(errors), warnings=warnings)

    def open(self, role: Role) -> SqlSink:
        return SqlSink(self._dialect(), self.sync)

    def _dialect(self) -> Dialect:
        section = self.section
        if isinstance(section, MySqlSection):
            return MySqlDialect(self._login(), section.database, section.state_database)
        assert isinstance(section, PostgreSqlSection)
        return PostgresDialect(self._login(), section.database, section.schema_name, section.state_schema)

    def _login(self) -> SqlLogin:
        section, account, tls = self.section, self.section.credentials_secret_ref, self.section.tls
        ca, pair = tls.ca_secret_ref, tls.client_cert_secret_ref
        folder = self.secrets_dir / account.name
        assert isinstance(section, MySqlSection | PostgreSqlSection)
        return SqlLogin(
            section.field,
            section.host,
            section.port,
            folder / account.username_key,
            folder / account.password_key,
            Tls(
                tls.mode,
                ca=self.secrets_dir / ca.name / ca.key if ca else None,
                cert=self.secrets_dir / pair.name / "tls.crt" if pair else None,
                key=self.secrets_dir / pair.name / "tls.key" if pair else None,
                allow_unverified=tls.allow_unverified or is_loopback(section.host),
            ),
        )
