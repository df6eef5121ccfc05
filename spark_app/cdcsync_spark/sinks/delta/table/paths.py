"""Which paths a table's Delta log may name: those of files in the table's own folder.

Why it exists: an account that can write one table's Delta log could name a file of another table,
or of the machine, and our credentials would copy its rows. Why it is right: a live file's path is
judged before anything is opened: as it is and as it is after every percent-decoding, because some
clients decode again what they are given. On a disk no part of it below the table may be a symbolic
link. Absolute paths, which the protocol allows (shallow clones), are refused with the rest: we
never write them. Pure.
"""

from __future__ import annotations

import re
from urllib.parse import unquote

from cdcsync_core.errors import RUN_AGAIN, CdcError, Reason, fail
from cdcsync_core.quoting import quoted

_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:/")
_OUTSIDE = frozenset(("", ".", ".."))


def inside(path: str) -> bool:
    """Whether `path`, relative to a folder, stays in it, however often it is decoded."""
    while True:
        if _OUTSIDE & set(path.split("/")) or "\0" in path or _SCHEME.match(path):
            return False
        decoded = unquote(path)
        if decoded == path:
            return True
        path = decoded


def foreign_path(path: str, why: str) -> CdcError:
    return fail(
        Reason.SINK_CONFLICT,
        f"the Delta log names the file {quoted(path)}, which {why}",
        needed="files in the table's own folder",
        remedy=f"restore a version of the target table without it; or move the table's folder away; {RUN_AGAIN}",
    )
