"""What keeps a Delta table quick to open and small on disk, after our own commits and never instead of one.

delta-rs reads every log entry since the last checkpoint when it opens a table, a MERGE leaves the files that it
replaced, and a stream of inserts leaves a small file per commit. So every `EVERY` own commits, in this order:

1. log entries older than the table's log retention and before the *last* checkpoint go; our newest entry, which holds the
   state, is newer than that checkpoint whatever the retention;
2. small files are compacted where many have gathered, unless that were a big rewrite (a user's OPTIMIZE);
3. replaced files older than the table's file retention are removed, by what the log says of them, never by listing the
   folder: staged files and side targets are not in the log. It must come before
4. the checkpoint, which forgets them.

Users change both retentions in the table's properties. Nothing here changes a row, and a failure is a warning: the commit
before it stands.
"""

from __future__ import annotations

import structlog
from deltalake import DeltaTable, PostCommitHookProperties
from deltalake.exceptions import DeltaError

from cdcsync_core.errors import CdcError
from cdcsync_spark.sinks.place import Place

EVERY = 20
#: that many files below `SMALL_BYTES` are compacted together with all below `COMPACTED_BYTES`, if they are at most `MOST_BYTES`
SMALL_FILES = 50
SMALL_BYTES = 2**20
COMPACTED_BYTES = 4 * 2**20
MOST_BYTES = 512 * 2**20
_NO_HOOKS = PostCommitHookProperties(create_checkpoint=False, cleanup_expired_logs=False)

_log = structlog.get_logger()


def after_commit(place: Place, number: int, *, side: bool) -> None:
    """Upkeep of the table at `place` that is due after own commit `number`. A side target keeps its log whole: its files
    are published from it."""
    if number == 0 or number % EVERY:
        return
    try:
        handle = DeltaTable(place.uri, storage_options=place.storage_options())
        if not side:
            handle.cleanup_metadata()
            _compact(handle)
            handle.vacuum(dry_run=False, post_commithook_properties=_NO_HOOKS)
        handle.create_checkpoint()
    except (OSError, DeltaError, CdcError) as error:
        _log.warning(
            "upkeep of a target table failed; it will be tried again", uri=place.uri, error=type(error).__name__
        )


def _compact(handle: DeltaTable) -> None:
    if compaction_due(handle.get_add_actions()["size_bytes"].to_pylist()):
        handle.optimize.compact(target_size=COMPACTED_BYTES, post_commithook_properties=_NO_HOOKS)


def compaction_due(sizes: list[int]) -> bool:
    """For the sizes in bytes of a table's files."""
    small = sum(size < SMALL_BYTES for size in sizes)
    return small >= SMALL_FILES and sum(size for size in sizes if size < COMPACTED_BYTES) <= MOST_BYTES
