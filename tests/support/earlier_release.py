"""What an earlier release left behind (`tests/data/earlier_release`), and a server on which it can
go on.

A position belongs to one binlog, so the binlog itself is part of the files: a new server with the
same `server_id` gets the rows without logging them, and then the recorded files as its own.
"""

from __future__ import annotations

import json
import os
import tarfile
from pathlib import Path
from typing import Any

from support.servers import Server

FOLDER = Path(__file__).parent.parent / "data" / "earlier_release"
SERVER_ID = 71


def statements(part: str) -> list[str]:
    """The statements of a part of `source.sql`."""
    text = (FOLDER / "source.sql").read_text(encoding="utf-8").split(f"-- part: {part}\n")[1].split("-- part: ")[0]
    return [s.strip() for s in text.split(";\n") if s.strip()]


def extract(member: str, folder: Path) -> None:
    """Writes what `local.tar.xz` has below `member`, without that name, into `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    with tarfile.open(FOLDER / "local.tar.xz") as archive:
        for entry in archive.getmembers():
            if entry.name.startswith(f"{member}/"):
                entry.name = entry.name.removeprefix(f"{member}/")
                archive.extract(entry, folder, filter="data")


def become_the_source(server: Server) -> None:
    """Makes `server`, a new MariaDB with `SERVER_ID`, the one that the release read."""
    server.run("SET sql_log_bin = 0", *statements("before the snapshot"), *statements("first changes"))
    server.stop()
    owner = server.datadir.stat()
    for file in server.datadir.glob("binlog.*"):
        file.unlink()
    extract("binlog", server.datadir)
    for file in server.datadir.glob("binlog.*"):
        os.chown(file, owner.st_uid, owner.st_gid)
    server.start()


def states() -> dict[str, Any]:
    """The metadata of an Iceberg table, the state's row of a SQL database and the record of a state
    topic, as `iceberg`, `sql` and `kafka`."""
    recorded: dict[str, Any] = json.loads((FOLDER / "states.json").read_text(encoding="utf-8"))
    return recorded


def delta_state(sync: str, table: str) -> dict[str, Any]:
    """The state in the newest commit of a table of the lake."""
    folder = f"{sync}/lake/{table.replace('.', '/')}/_delta_log/"
    with tarfile.open(FOLDER / "local.tar.xz") as archive:
        newest = max(name for name in archive.getnames() if name.startswith(folder) and name.endswith(".json"))
        entry = archive.extractfile(newest)
        assert entry is not None
        state: dict[str, Any] = json.loads(json.loads(entry.readline())["commitInfo"]["cdcsync"])
    return state


def as_a_newer_one_writes(table: Path) -> None:
    """Adds a key that this release does not know to the state in a Delta table's newest commit."""
    entry = max((table / "_delta_log").glob("*.json"))
    first, *others = entry.read_text(encoding="utf-8").splitlines()
    action = json.loads(first)
    state = json.loads(action["commitInfo"]["cdcsync"]) | {"rowsOfTomorrow": {"since": 1}}
    action["commitInfo"]["cdcsync"] = json.dumps(state)
    entry.write_text("\n".join([json.dumps(action), *others]) + "\n", encoding="utf-8")


def files(folder: Path) -> dict[str, bytes]:
    """The content of each file, by its path."""
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def cluster() -> dict[str, Any]:
    """Has `cdcsync`, a resource with its status, and the `configMaps` and `pods` of its runs."""
    objects: dict[str, Any] = json.loads((FOLDER / "cluster.json").read_text(encoding="utf-8"))
    return objects
