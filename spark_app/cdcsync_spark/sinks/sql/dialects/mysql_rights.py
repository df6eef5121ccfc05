"""What an account of MySQL or MariaDB may do in a schema, tried before the first statement that
counts.

A catalog of privileges says little about roles. So each statement is sent for a table that is not
there: a server checks the privilege first, and then finds no table. Nothing is changed by any.
"""

from __future__ import annotations

import uuid

from cdcsync_core.errors import RUN_AGAIN, CdcError, Reason, fail
from cdcsync_spark.sinks.sql.dialects.dialect import SqlSession
from cdcsync_spark.sinks.sql.dialects.mysql_session import quoted

#: a table with two columns of one name is never created
_TRIALS = {
    "CREATE": "CREATE TABLE {table} (a INT, a INT)",
    "CREATE TEMPORARY TABLES": "CREATE TEMPORARY TABLE {table} (a INT, a INT)",
    "SELECT": "SELECT 1 FROM {table} LIMIT 0",
    "INSERT": "INSERT INTO {table} VALUES (1)",
    "UPDATE": "UPDATE {table} SET a = 1",
    "DELETE": "DELETE FROM {table}",
    "ALTER": "ALTER TABLE {table} ADD a INT",
    "DROP": "DROP TABLE {table}",
}
#: of a statement that the account may send: there is no such table, or its columns are wrong
_ALLOWED = (Reason.SINK_CONFLICT, Reason.TYPE_UNSUPPORTED)
_HOST = "SUBSTRING_INDEX(CURRENT_USER(), '@', -1)"
_USER = f"LEFT(CURRENT_USER(), CHAR_LENGTH(CURRENT_USER()) - CHAR_LENGTH({_HOST}) - 1)"
_MAY_SEE = f"privilege_type = 'TRIGGER' AND grantee = CONCAT('''', {_USER}, '''@''', {_HOST}, '''')"
_EVERYWHERE = f"SELECT 1 FROM information_schema.user_privileges WHERE {_MAY_SEE}"
_IN_SCHEMA = f"SELECT 1 FROM information_schema.schema_privileges WHERE {_MAY_SEE} AND %s LIKE table_schema"


def refuse_rights(session: SqlSession, schema: str) -> None:
    """Raises `PrivilegeMissing` with all that the account lacks in the schema, and `CdcError` for
    what else keeps a server from taking statements, such as its read-only mode."""
    table = f"{quoted(schema)}.{quoted(f'cdcsync_{uuid.uuid4().hex}')}"
    lacking = [name for name, trial in _TRIALS.items() if not _may(session, trial.format(table=table))]
    if lacking:
        names = ", ".join(lacking)
        raise fail(
            Reason.PRIVILEGE_MISSING,
            f"the account lacks {names} in {schema}",
            needed="the privileges that docs/sql.md lists",
            remedy=f"GRANT {names} ON {quoted(schema)}.*, {RUN_AGAIN}",
        )
    if not _sees_triggers(session, schema):
        raise fail(
            Reason.PRIVILEGE_MISSING,
            f"the account may not see whether tables of {schema} have triggers, which change rows",
            needed="the privilege TRIGGER, granted to the account itself",
            remedy=f"GRANT TRIGGER ON {quoted(schema)}.*, {RUN_AGAIN}",
        )


def _may(session: SqlSession, statement: str) -> bool:
    try:
        session.run(statement)
    except CdcError as error:
        if error.reason is not Reason.PRIVILEGE_MISSING and error.reason not in _ALLOWED:
            raise
        return error.reason in _ALLOWED
    return True


def _sees_triggers(session: SqlSession, schema: str) -> bool:
    """An account without TRIGGER sees none. MySQL lets a schema be revoked from a right on
    everything (partial_revokes), which no catalog table shows."""
    if session.fetch((int,), _IN_SCHEMA, (schema,)):
        return True
    partial = session.fetch((str, str), "SHOW GLOBAL VARIABLES LIKE 'partial_revokes'")
    return not any(value != "OFF" for _, value in partial) and bool(session.fetch((int,), _EVERYWHERE))
