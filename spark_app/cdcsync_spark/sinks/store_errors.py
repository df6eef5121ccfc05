"""What clients and the operating system say of a store, in the product's words. Pure.

A refusal is for the user, unless it passes by itself; a table that is not what it was stops; all else a retry may cure.
"""

from __future__ import annotations

import errno
import re

from deltalake.exceptions import DeltaProtocolError, SchemaMismatchError

from cdcsync_core.errors import CdcError, Reason, fail

_DENIED = re.compile(
    r"AccessDenied|access denied|Forbidden|InvalidAccessKeyId|SignatureDoesNotMatch|Unauthorized"
    r"|permission denied|ACCESS_DENIED|status: 40[13]",
    re.I,
)
#: refusals that pass by themselves: a clock that is to be set, a token that is to be renewed
_PASSING = re.compile("RequestTimeTooSkewed|ExpiredToken|TokenRefreshRequired|RequestExpired", re.I)
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_FULL_TEXT = re.compile("no space left|quota exceeded|file too large", re.I)
#: delta-rs paints its errors for terminals
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")
_LONGEST = 1000


def one_line(error: Exception) -> str:
    return " ".join(_COLOURS.sub("", str(error)).split())


def store_error(error: Exception, text: str, doing: str, table: str) -> CdcError:
    """`text` is what `error` says without secrets; `doing` what failed, and where."""
    text = text[:_LONGEST]
    found = f"{doing} failed: {text}"
    code = getattr(error, "errno", None)
    if code in (errno.EACCES, errno.EPERM, errno.EROFS) or (_DENIED.search(text) and not _PASSING.search(text)):
        return fail(
            Reason.PRIVILEGE_MISSING,
            found,
            needed="the right to list, read, write and delete there",
            remedy="grant it, or correct spec.sink.delta.credentialsSecretRef",
            table=table,
        )
    if isinstance(error, DeltaProtocolError | SchemaMismatchError):
        return fail(
            Reason.SINK_CONFLICT,
            found,
            needed="the table as it was made",
            remedy="undo the change of the target table, or read the table again (spec.resnapshot)",
            table=table,
        )
    full = code in _FULL or _FULL_TEXT.search(text)
    remedy = "free space there" if full else "see whether the store is up and reachable"
    return fail(Reason.SINK_UNREACHABLE, found, remedy=remedy, table=table)
