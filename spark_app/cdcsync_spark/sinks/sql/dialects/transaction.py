"""A transaction of a session."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from cdcsync_spark.sinks.sql.dialects.dialect import SqlSession


@contextmanager
def transaction(session: SqlSession) -> Iterator[None]:
    """Commits, and rolls back at an error."""
    session.begin()
    try:
        yield
    except BaseException:
        session.rollback()
        raise
    session.commit()
