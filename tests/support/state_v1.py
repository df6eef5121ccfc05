"""What the version with state 1 left behind (`tests/fixtures/state_v1`), and a server on which it
can go on.

A position belongs to one binlog, so the binlog itself is part of the fixture: a new server with the
same `server_id` gets the rows without logging them, and then the recorded files as its own.
"""

from __future__ import annotations

import json
import os
import tarfile
from pathlib import Path
from typing import Any

from support.servers import Server

FOLDER = Path(__file__).parent.parent / "fixtures" / "state_v1"
SERVER_ID = 71


def statements(part: str) -> list[str]:
    """A part of `source.sql`."""
    text = (FOLDER / "source.sql").read_text(encoding="utf-8").split(f"-- part: {part}\n")[1].split("-- part: ")[0]
    return [s.strip() for s in text.split(";\n") if s.strip()]


def extract(member: str, folder: Path) -> None:
    """What `local.tar.xz` has below `member`, without that name, into `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    with tarfile.open(FOLDER / "local.tar.xz") as tar:
        for found in tar.getmembers():
            if found.name.startswith(f"{member}/"):
                found.name = found.name.removeprefix(f"{member}/")
                tar.extract(found, folder, filter="data")


def become_the_source(server: Server) -> None:
    """`server`, a new MariaDB with `SERVER_ID`, becomes the one that the fixture was read from."""
    server.run("SET sql_log_bin = 0", *statements("before the snapshot"), *statements("first changes"))
    server.stop()
    owner = server.datadir.stat()
    for file in server.datadir.glob("binlog.*"):
        file.unlink()
    extract("binlog", server.datadir)
    for file in server.datadir.glob("binlog.*"):
        os.chown(file, owner.st_uid, owner.st_gid)
    server.start()


def recorded_state(sync: str, table: str) -> dict[str, Any]:
    """The state in the newest commit of a table of the fixture's lake."""
    folder = f"{sync}/lake/{table.replace('.', '/')}/_delta_log/"
    with tarfile.open(FOLDER / "local.tar.xz") as tar:
        newest = max(name for name in tar.getnames() if name.startswith(folder))
        entry = tar.extractfile(newest)
        assert entry is not None
        state: dict[str, Any] = json.loads(json.loads(entry.readline())["commitInfo"]["cdcsync"])
    return state


def cluster() -> dict[str, Any]:
    """`cdcsync`, a resource of a cluster with its status, and the `configMaps` of its run."""
    found: dict[str, Any] = json.loads((FOLDER / "cluster.json").read_text(encoding="utf-8"))
    return found
