"""The log of a Delta table as the place of our state.

Every own commit carries the whole state in its `commitInfo` (rule R4). No program changes an entry
that others follow, so the newest own state at a version is found by reading entries downwards from
it until one is ours: nearly always the first. Entries of other programs have no state; those that
change no row (OPTIMIZE, VACUUM) are skipped, the others are in `sinks.delta.table.foreign`. Files
are read here directly and not through delta-rs' `history()`, which mixes in commits newer than the
handle.

Entries are kept as long as they are needed: the table is made with
`delta.enableExpiredLogCleanup=false`, which stops every program's automatic clean-up, and we clean
up ourselves right after a commit of our own, before a checkpoint that is older than it
(`sinks.delta.replica.maintenance`). However long a table rests, its newest state stays.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.fs as pafs

from cdcsync_core.errors import RUN_AGAIN, PermanentError, Reason
from cdcsync_core.state import TableState
from cdcsync_spark.sinks.delta.table.weight import refuse_heavy_entry

#: the key in `commitInfo`
STATE_KEY = "cdcsync"
_ENGINE = "cdcsync"
_LINE = re.compile(r"[^\n]+")
MOST_FOREIGN_COMMITS = 10_000
#: where nothing says whose table it is, no user is to be asked to remove it
OWN_TABLE = "where the table is this sync's own, move its folder away"


#: what parsers raise of content that is not what it should be: too deep, too large, of other types
_BROKEN = (
    ValueError,
    LookupError,
    TypeError,
    AttributeError,
    OverflowError,
    RecursionError,
    OSError,
    pa.ArrowException,
)


def entry_name(version: int) -> str:
    """Relative to the table."""
    return f"_delta_log/{version:020d}.json"


class TornFile(PermanentError):
    """A file of the Delta log that cannot be parsed."""


@contextmanager
def parsing(path: str) -> Iterator[None]:
    """Around what parses the whole content of the file at `path`: one that was cut stops its table,
    and no other."""
    try:
        yield
    except MemoryError:
        raise
    except _BROKEN as broken:
        raise TornFile(
            Reason.SINK_CONFLICT,
            f"the file {path} cannot be read: {' '.join(str(broken).split())[:200] or type(broken).__name__}",
            needed="a whole log",
            remedy=f"restore the file; or, {OWN_TABLE}, {RUN_AGAIN}",
        ) from None


@dataclass(frozen=True)
class Log:
    """The `_delta_log` of the table in `folder`, relative to `files`; `read` gives a whole file
    there, None for none, `has` says whether there is one, `listed` has the names in a folder;
    `linked` is whether a path below the table goes through a symbolic link."""

    files: pafs.FileSystem
    folder: str
    read: Callable[[str], bytes | None]
    has: Callable[[str], bool]
    listed: Callable[[str], Iterable[str]]
    linked: Callable[[str], bool] = lambda _: False

    def names(self) -> list[str]:
        """The files in the Delta log; none where there is no log."""
        return list(self.listed(f"{self.folder}/_delta_log"))

    def entry(self, version: int) -> str | None:
        """The text of one commit, one JSON action a line (`\\n` alone ends a line: a text in it may
        hold U+0085); None where it is not there."""
        content = self.read(self.entry_path(version))
        if content is None:
            return None
        with parsing(self.entry_path(version)):
            if not content.strip():
                # a commit says something: it was named before it was durable
                raise ValueError("it is empty")
            text = content.decode()
        refuse_heavy_entry(self.entry_path(version), text)
        return text

    def has_entry(self, version: int) -> bool:
        return self.has(self.entry_path(version))

    def still_has(self, version: int, digest: bytes) -> bool:
        """Whether the entry of `version` is there and the one with this digest; empty: any one."""
        if not digest:
            return self.has_entry(version)
        content = self.read(self.entry_path(version))
        return content is not None and digest_of(content) == digest

    def entry_path(self, version: int) -> str:
        return f"{self.folder}/{entry_name(version)}"

    def state_at(self, version: int) -> TableState | None:
        """The newest own state at or before `version`; None where no entry that is left holds
        one."""
        for earlier in range(version, max(-1, version - MOST_FOREIGN_COMMITS), -1):
            entry = self.entry(earlier)
            if entry is None:
                return None
            with parsing(self.entry_path(earlier)):
                state = own_state(entry)
            if state is not None:
                return state
        return None


def digest_of(entry: bytes) -> bytes:
    """Differs between entries of one version."""
    return hashlib.blake2b(entry, digest_size=16).digest()


def lines_of(entry: str) -> Iterator[str]:
    """Lines that are not empty, one at a time; `\\n` alone ends a line."""
    return (line[0] for line in _LINE.finditer(entry))


def own_state(entry: str) -> TableState | None:
    """The state in a commit's text; None for another program's commit; raises `SinkConflict` for a
    form of another version."""
    for line in lines_of(entry):
        if line.startswith('{"commitInfo"'):
            text = json.loads(line)["commitInfo"].get(STATE_KEY)
            return None if text is None else TableState.from_dict(json.loads(text))
    return None


def written(state: TableState) -> str:
    """The state as its commit carries it."""
    return json.dumps(state.to_dict(), ensure_ascii=False, separators=(",", ":"))


def head(state: TableState, operation: str, now: int) -> list[dict[str, Any]]:
    """What begins every entry of ours: the whole state (rule R4) and the transaction."""
    info = {
        "timestamp": now,
        "operation": operation,
        "operationParameters": {},
        "engineInfo": _ENGINE,
        STATE_KEY: written(state),
    }
    txn = {"appId": state.identity.app_id, "version": state.commit_number, "lastUpdated": now}
    return [{"commitInfo": info}, {"txn": txn}]
