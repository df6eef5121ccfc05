"""What delta-rs, other clients and the operating system raise, in the product's words. Pure.

A table that is not what it was stops; the rest is for `cdcsync_lake.failures`. A missing bucket is
no fault of any table: the run ends and is tried again, and the preflight before that says what is
permanent. delta-rs is not loaded for its errors: as long as it is not, nothing raises one.
"""

from __future__ import annotations

import sys
from types import ModuleType

from cdcsync_core.errors import RUN_AGAIN, CdcError, Reason, fail
from cdcsync_core.remedies import RESNAPSHOT
from cdcsync_lake.failures import brief, store_error


def client_errors() -> tuple[type[Exception], ...]:
    """What the clients of stores raise, and the operating system."""
    module = _of_delta_rs()
    return (OSError, module.DeltaError) if module else (OSError,)


def _changed_errors() -> tuple[type[Exception], ...]:
    """What delta-rs raises for a table that is not what it was."""
    module = _of_delta_rs()
    return (module.DeltaProtocolError, module.SchemaMismatchError) if module else ()


def _of_delta_rs() -> ModuleType | None:
    if "deltalake" not in sys.modules:
        return None
    from deltalake import exceptions

    return exceptions


def sink_error(error: Exception, text: str, doing: str, table: str) -> CdcError:
    """`text` is what `error` says without secrets; `doing` what failed, and where."""
    store_failure = store_error(error, text, doing, table)
    if isinstance(error, _changed_errors()) and store_failure.reason.retried:
        return fail(
            Reason.SINK_CONFLICT,
            f"{doing} failed: {brief(text)}",
            needed="the table as it was made",
            remedy=f"{RESNAPSHOT}; or undo the change of the target table, {RUN_AGAIN}",
            table=table,
        )
    return of_the_run(store_failure)


def of_the_run(error: CdcError) -> CdcError:
    """A missing bucket ends the run, which is tried again."""
    if error.reason is not Reason.NO_SUCH_BUCKET:
        return error
    return fail(Reason.SINK_UNREACHABLE, error.found, needed=error.needed, remedy=error.remedy, table=error.table)
