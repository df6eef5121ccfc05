"""Servers that describe rows no more than they have to."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from support.servers import Server

#: by flavor: signs and character sets of texts; nothing. Both are what the server has by itself
LEAST = {"mysql": "MINIMAL", "mariadb": "NO_LOG"}


@contextmanager
def least_metadata(server: Server) -> Iterator[None]:
    """For all that is written meanwhile."""
    [(before,)] = server.query("SELECT @@GLOBAL.binlog_row_metadata")
    server.query(f"SET GLOBAL binlog_row_metadata = '{LEAST[server.flavor]}'")
    try:
        yield
    finally:
        server.query(f"SET GLOBAL binlog_row_metadata = '{before}'")
