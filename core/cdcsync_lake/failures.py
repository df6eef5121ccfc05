"""The errors of object stores and file systems in the product's words. Pure.

Why it is right: a refusal is for the user, unless it passes by itself; all else a retry may fix. Of
a store's answer only its HTTP status and a code that S3 documents are shown, never its text: the
endpoint may be a server of another kind, whose answers readers of the status must not see.
Clients append a dump of their own data structures, which is cut; what is left is quoted.
"""

from __future__ import annotations

import errno
import re

from cdcsync_core.errors import CdcError, Reason, fail
from cdcsync_core.quoting import quoted

_NO_BUCKET = re.compile(r"NoSuchBucket")
_DENIED = re.compile(
    r"AccessDenied|access denied|Forbidden|InvalidAccessKeyId|SignatureDoesNotMatch|Unauthorized"
    r"|permission denied|ACCESS_DENIED|status: 40[13]",
    re.I,
)
#: refusals that pass by themselves: a clock that is to be set, a token that is to be renewed
_PASSING = re.compile("RequestTimeTooSkewed|ExpiredToken|TokenRefreshRequired|RequestExpired", re.I)
_ELSEWHERE = re.compile("PermanentRedirect|AuthorizationHeaderMalformed|IllegalLocationConstraint")
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_FULL_TEXT = re.compile("no space left|quota exceeded|file too large", re.I)
#: delta-rs colours its errors for terminals
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")
#: what S3 answers with; MinIO's codes begin with XMinio. Source: Amazon S3 API Reference, "Error
#: responses"
_CODE = re.compile(
    r"<Code>(Access(?:Denied|PointNotFound)|AllAccessDisabled|AuthorizationHeaderMalformed|AuthorizationQueryParametersError"
    r"|BucketRegionError|ConditionalRequestConflict|EntityTooLarge|ExpiredToken|IllegalLocationConstraintException|IncompleteBody"
    r"|InternalError|Invalid(?:AccessKeyId|Argument|BucketName|BucketState|Digest|ObjectState|Request|Security|Token|URI)"
    r"|KeyTooLongError|KMS\.[A-Za-z]{1,30}|MethodNotAllowed|MissingSecurityHeader|NoSuch(?:Bucket|Key|Upload)|NotImplemented"
    r"|OperationAborted|PermanentRedirect|PreconditionFailed|Redirect|Request(?:Expired|Timeout|TimeTooSkewed)"
    r"|ServiceUnavailable|SignatureDoesNotMatch|SlowDown|TemporaryRedirect|TokenRefreshRequired|XMinio[A-Za-z]{1,40})</Code>"
)
#: where a client's text goes over to what the server sent
_ANSWER = re.compile(r"(status code: \d{3}(?: [A-Z][A-Za-z -]{0,40})?|Got invalid [a-z ]{1,20} response)\b.*", re.S)
#: where a client's dump of its own data begins, and what of it is worth keeping
_DUMP = re.compile(r"\s*Debug source:")
_CAUSE = re.compile(r'message: "([^"]+)"|error: "([^"]+)"')


def brief(text: str) -> str:
    """The error text of a store or its client, quoted, without the client's dump and without what
    the server sent but for its status and code."""
    text = _COLOURS.sub("", text)
    code = _CODE.search(text)
    if code:
        return quoted(code[1])
    head, _, dump = text.partition("Debug source:")
    cause = _CAUSE.search(dump)
    text = " ".join(_ANSWER.sub(r"\1", head).split())
    return quoted(f"{text}: {cause[1] or cause[2]}" if cause else text)


def store_error(error: Exception, text: str, doing: str, table: str = "") -> CdcError:
    """`text` is the error's text without secrets; `doing` what failed, and where."""
    found = f"{doing} failed: {brief(text)}"
    code = getattr(error, "errno", None)
    if _NO_BUCKET.search(text):
        return fail(
            Reason.NO_SUCH_BUCKET,
            found,
            needed="a bucket that exists",
            remedy="create the bucket, or correct path and options.endpoint in spec.sink",
            table=table,
        )
    if code in (errno.EACCES, errno.EPERM, errno.EROFS) or (_DENIED.search(text) and not _PASSING.search(text)):
        return denied(found, table)
    if _ELSEWHERE.search(text):
        remedy = "set options.region in spec.sink to the bucket's region"
        return fail(Reason.SPEC_INVALID, found, needed="the bucket's own region", remedy=remedy, table=table)
    full = code in _FULL or _FULL_TEXT.search(text)
    remedy = "free space there" if full else "check that the store is up and reachable"
    return fail(Reason.SINK_UNREACHABLE, found, remedy=remedy, table=table)


def denied(found: str, table: str = "") -> CdcError:
    return fail(
        Reason.PRIVILEGE_MISSING,
        found,
        needed="the right to list, read, write and delete there",
        remedy="grant it, or correct credentialsSecretRef in spec.sink",
        table=table,
    )
