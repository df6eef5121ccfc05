"""What delta-rs, other clients and the operating system raise, in the product's words. Pure.

A table that is not what it was stops; the rest is for `cdcsync_lake.failures`. A missing bucket is
no fault of any table: the run ends and is tried again, and the preflight before that says what is
permanent.
"""

from __future__ import annotations

from deltalake.exceptions import DeltaProtocolError, SchemaMismatchError

from cdcsync_core.errors import RUN_AGAIN, CdcError, Reason, fail
from cdcsync_core.remedies import RESNAPSHOT
from cdcsync_lake.failures import brief, store_error


def sink_error(error: Exception, text: str, doing: str, table: str) -> CdcError:
    """`text` is what `error` says without secrets; `doing` what failed, and where."""
    known = store_error(error, text, doing, table)
    if isinstance(error, DeltaProtocolError | SchemaMismatchError) and known.reason.retried:
        return fail(
            Reason.SINK_CONFLICT,
            f"{doing} failed: {brief(text)}",
            needed="the table as it was made",
            remedy=f"{RESNAPSHOT}; or undo the change of the target table, {RUN_AGAIN}",
            table=table,
        )
    return of_the_run(known)


def of_the_run(error: CdcError) -> CdcError:
    """A missing bucket ends the run, which is tried again."""
    if error.reason is not Reason.NO_SUCH_BUCKET:
        return error
    return fail(Reason.SINK_UNREACHABLE, error.found, needed=error.needed, remedy=error.remedy, table=error.table)
