"""How often and how much, as values that a sink is given: users have the defaults, tests make them
small."""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace


@dataclass(frozen=True)
class MaintenancePolicy:
    """Steps of maintenance (`sinks.lake.maintenance`, `sinks.lake.compaction`)."""

    #: commits from one checkpoint to the next, where the metadata is a log
    checkpoint_entries: int = 50
    #: files that one step removes at most
    removed_files: int = 200
    #: how long a step that failed is left out
    retry_seconds: float = 300.0
    #: files of one size class that are gathered
    gathered_files: int = 5
    #: bytes of the smallest class, and the factor between classes
    smallest_class_bytes: int = 64 * 1024
    class_factor: int = 8
    #: what one compaction handles at most
    most_bytes: int = 32 * 2**20
    most_rows: int = 1_000_000
    #: the share of deleted rows from which a file is peeled, if it has that many bytes
    deleted_share: float = 0.25
    peeled_bytes: int = 2**20


@dataclass(frozen=True)
class CommitLimits:
    """Where a commit changes its behaviour."""

    #: commits of other programs may get in between that often before the run gives up and is
    #: retried with backoff
    attempts: int = 20
    #: rows from which a table's index is built before its first batch comes
    warm_rows: int = 1_000_000
    #: bytes of files that a change of the schema rewrites at most; a table of more is resnapshotted
    rewritten_bytes: int = 2 * 2**30


#: what a sink uses unless it is given others
POLICY, LIMITS = MaintenancePolicy(), CommitLimits()
#: of a snapshot that a stream follows, which has time between its commits: gathering would rewrite
#: all rows while the snapshot runs
LEAVING_SMALL_FILES = replace(POLICY, gathered_files=sys.maxsize)
