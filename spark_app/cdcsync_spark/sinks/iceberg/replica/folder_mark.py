"""The mark of a table in its folder: whose files lie there.

A catalog may have two tables in one folder, by mistake or malice. The files of the other one have
names like those of this one, and no snapshot of this one names them. So a table marks its folder
before it has a file there that may be removed (what is younger than an hour never is), and before
each removal the marks are read. Other programs' clean-up passes by names that begin with `_`.
"""

from __future__ import annotations

import hashlib

from cdcsync_spark.sinks.iceberg.replica.place import IcebergFolder
from cdcsync_spark.sinks.iceberg.table.view import METADATA

#: a folder of their own, so that all are read by one short listing
MARKS = f"{METADATA}/_cdcsync"


def mark_folder(folder: IcebergFolder) -> None:
    """Leaves the table's mark, unless it is there."""
    path = f"{MARKS}/{_own(folder)}"
    if not folder.lake.has(path):
        with folder.lake.new_file(path) as local:
            local.write_text(f"{folder.sync}/{folder.table}\n", encoding="utf-8")


def has_other_tables(folder: IcebergFolder) -> bool:
    """Whether another table of this program has its files in the folder, too."""
    return bool(set(folder.lake.listed(MARKS)) - {_own(folder)})


def _own(folder: IcebergFolder) -> str:
    return hashlib.sha256(f"{folder.sync}/{folder.table}".encode()).hexdigest()[:32]
