"""A verification as a run of a sync: it compares the run's tables as `cdcsync verify` does, and
reports one result for each.

Why it is right: the comparison is the one of the laptop, and only where the status comes from and
where results go is different. A result names the request that it answers, so an old one never
counts for a new one. What is reported and logged has names, counts and positions, and no values of
rows, which keys are. The stream is not touched: the source is read by connections of its own, and
the binlog under a replica id of its own.
"""

from __future__ import annotations

import json
import time
from pathlib import Path

from cdcsync_core.errors import from_json
from cdcsync_core.quoting import visible
from cdcsync_core.runs.report import TableReport
from cdcsync_core.runs.verification import DifferenceKind, TableResult, VerificationProgress, VerifyConfig
from cdcsync_core.runs.verification_status import VerifiedResult
from cdcsync_core.timestamps import utc
from cdcsync_kube.access import in_pod
from cdcsync_spark.logs import get_logger
from cdcsync_spark.run.context import RunContext
from cdcsync_spark.verify.comparison import Comparison
from cdcsync_spark.verify.sync_status import RecentStatus, read_resource, read_status

#: seconds that the stream may take to pass the position at which keys were compared again
_STREAM_SECONDS = 300.0
_log = get_logger()


def run_verification(context: RunContext) -> None:
    """Raises Draining when the run is asked to stop, and CdcError for what concerns all tables."""
    config, nonce = context.config, context.resource.spec.verify.nonce
    tables = frozenset(str(t.table.id) for t in config.tables)

    def note(_: VerificationProgress | TableResult) -> None:
        context.wait(0)

    scratch = VerifyConfig(
        config.resource, config.secrets_dir, "", "", config.scratch_dir, limit=0, timeout=_STREAM_SECONDS
    )
    comparison = Comparison(
        scratch, context.resource, context.source, context.facts, context.sink, _status(context), note, tables
    )
    results = comparison.run()
    at = utc(time.time())
    for result in results:
        counts = {"rows": result.source_rows, "differences": result.counts or {}}
        _log.info("verified", table=visible(result.table), result=_verdict(result).value, **counts)
    context.reporter.report(tables=[_entry(result, nonce, at) for result in results])


def _entry(result: TableResult, nonce: int, at: str) -> TableReport:
    counts = result.counts or {}
    return {
        "name": result.table,
        "verified": {
            "nonce": nonce,
            "at": at,
            "result": _verdict(result).value,
            "generation": result.generation,
            "sourceRows": result.source_rows,
            "targetRows": result.target_rows,
            "missing": counts.get(DifferenceKind.MISSING, 0),
            "extra": counts.get(DifferenceKind.EXTRA, 0),
            "different": counts.get(DifferenceKind.DIFFERENT, 0),
            "duplicate": counts.get(DifferenceKind.DUPLICATE, 0),
            "unconfirmed": result.unconfirmed,
            "position": result.position,
            "message": _message(result),
        },
    }


def _verdict(result: TableResult) -> VerifiedResult:
    if result.differences:
        return VerifiedResult.DIFFERENT
    return VerifiedResult.EQUAL if result.equal else VerifiedResult.NOT_COMPARED


def _message(result: TableResult) -> str:
    """Why not all of the table was compared."""
    if result.error:
        return from_json(json.dumps(result.error)).message
    return result.skipped or (f"{result.unconfirmed:,} keys differ, but {result.why}" if result.unconfirmed else "")


def _status(context: RunContext) -> RecentStatus:
    """That of the file of a laptop, else of the resource on the cluster."""
    if context.config.status_file:
        return RecentStatus(lambda: read_status(Path(context.config.status_file)))
    api = in_pod()
    return RecentStatus(lambda: read_resource(api, context.resource.metadata))
