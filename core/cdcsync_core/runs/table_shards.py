"""The tables of a large sync that lie in shards beside its status, as a reader takes them (see
`cdcsync_operator.reconcile.table_shards` for how they are written).

Why it is right: a status has a digest of the shards that it was written with. Shards are written
before the status, so a reader may meet new shards beside the status of before; a table that has
joined the stream in these would count as being at a position that was reported before it joined,
and the failure of a table would be lost with older shards beside a newer status. The digest refuses
such a pair, and a shard that another program wrote. Pure.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from typing import Any

from cdcsync_core.runs.status import Status
from cdcsync_core.runs.table_status import TableStatus


def digest_of(shards: Iterable[str]) -> str:
    """A digest of the texts of shards, in hexadecimal digits; empty where there are none."""
    digest = ""
    for text in shards:
        digest = _extended(digest, text)
    return digest


def count_shards(status: Status, shards: Iterable[str]) -> int:
    """How many of the first shards the status was written with; 0 where they are others. One text
    is in memory at a time, because an account that may write ConfigMaps can write many."""
    first = _FirstShards(status)
    return next((count for count, text in enumerate(shards, 1) if first.complete_with(text)), 0)


def with_shards(status: Status, shards: Iterable[str]) -> Status | None:
    """The status with the tables of its shards; None where the first shards, however many, are not
    those that it was written with."""
    first, texts = _FirstShards(status), list[str]()
    for text in shards:
        texts.append(text)
        if first.complete_with(text):
            entries = (entry for shard in texts for entry in _entries(shard))
            return status.with_(table_status=tuple(TableStatus.model_validate(entry) for entry in entries))
    return None


class _FirstShards:
    """The shards of a status that were read. A status without a digest is one of a release before
    there was any, which counted on the number of the tables."""

    def __init__(self, status: Status) -> None:
        self._status = status
        self._digest, self._tables = "", 0

    def complete_with(self, text: str) -> bool:
        """Whether these, with one more, are all that the status was written with."""
        if self._status.table_digest:
            self._digest = _extended(self._digest, text)
            return self._digest == self._status.table_digest
        self._tables += len(_entries(text))
        return self._tables == self._status.tables.total + self._status.tables.unassigned


def _entries(text: str) -> list[Any]:
    """Parses a shard; there are none in a text that is no list."""
    try:
        entries = json.loads(text)
    except (ValueError, RecursionError):
        return []
    return entries if isinstance(entries, list) else []


def _extended(digest: str, text: str) -> str:
    return hashlib.sha256(digest.encode() + text.encode()).hexdigest()
