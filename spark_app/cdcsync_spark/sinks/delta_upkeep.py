"""What keeps a Delta table quick to open and small on disk, after our own commits and never instead of one.

delta-rs reads every log entry since the last checkpoint when it opens a table, a MERGE leaves the files that it
replaced, and a stream of inserts leaves a small file per commit. So, counted by own commits: a checkpoint, then the removal of log
entries older than the table's log retention (our newest entry has just been written: it stays); a compaction where
many small files have gathered; a removal of replaced files older than the table's file retention. Users change both retentions in the table's properties. Nothing here
changes a row, and a failure is a warning: the commit before it stands.
"""

from __future__ import annotations

import structlog
from deltalake import DeltaTable, PostCommitHookProperties
from deltalake.exceptions import DeltaError

CHECKPOINT_EVERY = 20
COMPACT_EVERY = 200
SMALL_FILES = 50
SMALL_BYTES = 16 * 2**20
_NO_HOOKS = PostCommitHookProperties(create_checkpoint=False, cleanup_expired_logs=False)

_log = structlog.get_logger()


def after_commit(uri: str, options: dict[str, str], number: int, *, side: bool) -> None:
    """Upkeep that is due after own commit `number`. A side target keeps its log whole (its files are published from it)."""
    if number == 0 or number % CHECKPOINT_EVERY:
        return
    try:
        handle = DeltaTable(uri, storage_options=options)
        handle.create_checkpoint()
        if side:
            return
        handle.cleanup_metadata()
        if number % COMPACT_EVERY == 0:
            _compact(handle)
            handle.vacuum(dry_run=False, post_commithook_properties=_NO_HOOKS)
    except (OSError, DeltaError) as error:
        _log.warning("upkeep of a target table failed; it will be tried again", uri=uri, error=type(error).__name__)


def _compact(handle: DeltaTable) -> None:
    sizes = handle.get_add_actions()["size_bytes"].to_pylist()
    if sum(size < SMALL_BYTES for size in sizes) >= SMALL_FILES:
        handle.optimize.compact(post_commithook_properties=_NO_HOOKS)
