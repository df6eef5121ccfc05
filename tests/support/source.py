"""A test server as the product sees it: a `Source` whose account is in files."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from cdcsync_core.positions.lineage import Lineage
from cdcsync_mysql.server import ServerFacts, read_facts
from cdcsync_mysql.sessions.connection import Connection, Source, Tls, connect
from cdcsync_spark.binlog.search.crash_tail import TailLimits, TailReader
from cdcsync_spark.stream.apply.crash_repair import SourceRepair
from support.servers import Server


def source_of(server: Server, user: str = "root", password: str = "", tls: Tls | None = None) -> Source:
    """Its files live as long as the test run."""
    folder = Path(tempfile.mkdtemp(prefix="account-", dir=_folder()))
    (folder / "username").write_text(user)
    (folder / "password").write_text(password)
    return Source(
        server.host,
        server.port,
        folder / "username",
        folder / "password",
        tls or Tls("disabled", allow_unverified=True),
    )


def repair_of(
    source: Source, lineage: Lineage, limits: TailLimits | None = None, piece_keys: int = SourceRepair.piece_keys
) -> SourceRepair:
    """What an applier of the binlog needs after a crash of its source."""
    tail = TailReader(source, lineage, Path(_folder()), limits=limits or TailLimits())
    return SourceRepair(source, lineage, tail, max_seconds=60, piece_keys=piece_keys)


@contextmanager
def connected(server: Server) -> Iterator[tuple[Connection, ServerFacts]]:
    """A connection of the product as root, and the facts of its server."""
    with connect(source_of(server)) as connection:
        yield connection, read_facts(connection)


_KEPT: list[tempfile.TemporaryDirectory[str]] = []


def _folder() -> str:
    if not _KEPT:
        _KEPT.append(tempfile.TemporaryDirectory(prefix="cdcsync-accounts-"))
    return _KEPT[0].name
