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

from cdcsync_core.runs.status import Status, TableStatus


def digest_of(shards: Iterable[str]) -> str:
    """A digest of the texts of shards, in hexadecimal digits; empty where there are none."""
    digest = ""
    for text in shards:
        digest = _extended(digest, text)
    return digest


def count_shards(digest: str, shards: Iterable[str]) -> int:
    """How many of the first shards have this digest; 0 where none have. One text is in memory at a
    time, because whoever may write ConfigMaps can write many large ones."""
    extended = ""
    for count, text in enumerate(shards, 1):
        extended = _extended(extended, text)
        if extended == digest:
            return count
    return 0


def with_shards(status: Status, shards: Iterable[str]) -> Status | None:
    """The status with the tables of its shards; None where the first shards, however many, are not
    those that it was written with."""
    digest, texts = "", list[str]()
    for text in shards:
        digest = _extended(digest, text)
        texts.append(text)
        if digest == status.table_digest:
            entries = (entry for shard in texts for entry in json.loads(shard))
            return status.with_(table_status=tuple(TableStatus.model_validate(entry) for entry in entries))
    return None


def _extended(digest: str, text: str) -> str:
    return hashlib.sha256(digest.encode() + text.encode()).hexdigest()
