"""What commits of other programs mean for the state of a Delta table.

A state counts for the rows of its own version (rule R4). A commit of another program that changes
no row keeps it. A RESTORE brings rows of an older version back, so the state of that version counts
again, and the binlog is replayed from its position. Any other change of rows is noted in the state
(`TableState.written`), which our next commit carries on.

Why it is right: what a RESTORE says of itself only proposes a version. It counts if the table then
has that version's columns and files, each with the same rows deleted; else it is a change of rows
like any other, as when a file was missing and was passed over. What came before that version counts
as of it: a row that another program had changed by then is still noted, one changed later is gone.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from cdcsync_core.state import SinkWrite, TableState
from cdcsync_spark.sinks.delta.table.log import MOST_FOREIGN_COMMITS, Log, own_state, parsing
from cdcsync_spark.sinks.delta.table.vector_files import Descriptor
from cdcsync_spark.sinks.delta.table.view import Action, TableView, actions_of, changes_rows, vector_of

#: of what a commit says of itself
_LONGEST = 100
#: of times in milliseconds: the year 10000
_END_OF_TIME = 253_402_300_800_000
_VERSION = re.compile(r"[0-9]{1,18}")
#: the table at a version; None where the Delta log does not reach back to it
ViewAt = Callable[[int], TableView | None]
#: path -> which of its rows are deleted
_Files = dict[str, Descriptor | None]


def settled_state(log: Log, version: int, view_at: ViewAt) -> TableState | None:
    """The state of the rows of `version`; None where no entry that is left holds one."""
    newest = log.state_at(version)
    state = None if newest is None else _Settling(log, view_at).state(version)
    return state and newest and state.restored(newest)


@dataclass(frozen=True)
class _Settling:
    log: Log
    view_at: ViewAt

    def state(self, version: int) -> TableState | None:
        """The own state whose rows `version` has, with what others changed of them since."""
        written: SinkWrite | None = None
        for earlier in range(version, max(-1, version - MOST_FOREIGN_COMMITS), -1):
            text = self.log.entry(earlier)
            if text is None:
                return None
            with parsing(self.log.entry_path(earlier)):
                state, actions = own_state(text), list(actions_of(text))
                write = write_of(earlier, actions) if state is None and changes_rows(actions) else None
            if write is not None:
                state = self._restored(write, actions)
                written = written or (write if state is None else None)
            if state is not None:
                return replace(state, written=written or state.written)
        return None

    def _restored(self, write: SinkWrite, actions: list[Action]) -> TableState | None:
        """The state that an entry took the table back to; None for an entry that did not."""
        after = self.view_at(write.version) if write.operation == "RESTORE" else None
        if after is None:
            return None
        named = _restored_version(actions)
        chosen = self._version_of(_files(after), write.version) if named is None else named
        before = self.view_at(chosen) if chosen is not None and chosen < write.version else None
        return self.state(before.version) if before is not None and _same_rows(after, before) else None

    def _version_of(self, files: _Files, version: int) -> int | None:
        """The newest version before `version` that had these files: a RESTORE to a time names
        none."""
        current, differing = dict(files), set[str]()
        for earlier in range(version - 1, max(-1, version - MOST_FOREIGN_COMMITS), -1):
            text = self.log.entry(earlier + 1)
            if text is None:
                return None
            with parsing(self.log.entry_path(earlier + 1)):
                paths = _taken_back(current, list(actions_of(text)))
            for path in paths:
                same = path in current and path in files and current[path] == files[path]
                unchanged = same or (path not in current and path not in files)
                (differing.discard if unchanged else differing.add)(path)
            if not differing:
                return earlier
        return None


def _taken_back(files: _Files, actions: list[Action]) -> set[str]:
    """Makes `files` what they were before an entry; the paths that it names."""
    added = {a["add"]["path"] for a in actions if a.get("add")}
    removed = {a["remove"]["path"]: vector_of(a["remove"]) for a in actions if a.get("remove")}
    for path in added:
        files.pop(path, None)
    files.update(removed)
    return added | removed.keys()


def write_of(version: int, actions: list[Action]) -> SinkWrite:
    """Who changed rows by the entry of `version`, as the entry says."""
    info = _info(actions)
    at = info.get("timestamp")
    return SinkWrite(
        version,
        str(info.get("engineInfo") or "")[:_LONGEST],
        str(info.get("operation") or "")[:_LONGEST],
        at / 1000 if isinstance(at, int) and 0 <= at < _END_OF_TIME else None,
    )


def _info(actions: list[Action]) -> dict[str, Any]:
    return next((dict(a["commitInfo"]) for a in actions if a.get("commitInfo")), {})


def _restored_version(actions: list[Action]) -> int | None:
    """Spark writes a number or nothing, delta-rs a text."""
    parameters = _info(actions).get("operationParameters")
    version = str(parameters.get("version")) if isinstance(parameters, dict) else ""
    return int(version) if _VERSION.fullmatch(version) else None


def _files(view: TableView) -> _Files:
    return {path: file.vector for path, file in view.files.items()}


def _same_rows(one: TableView, other: TableView) -> bool:
    return _files(one) == _files(other) and one.fields == other.fields and one.partitions == other.partitions
