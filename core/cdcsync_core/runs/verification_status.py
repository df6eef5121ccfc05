"""What a status shows of a verification: of the request, and of each table that was compared.

Why it is right: a result names the request that it answers and the content that was compared, so it
counts for no other; a difference stays with its table until it was found equal or has another
content. There are counts and positions in it, and no values of rows.
"""

from __future__ import annotations

from enum import StrEnum

from pydantic import Field

from cdcsync_core.runs.status_part import Restarts, StatusPart, Text, Word


class VerifiedResult(StrEnum):
    """What a verification found of a table; NOT_COMPARED: nothing is proven, or not of all keys."""

    EQUAL = "Equal"
    DIFFERENT = "Different"
    NOT_COMPARED = "NotCompared"


class VerifiedStatus(StatusPart):
    """What the last verification of a table found, for the request `nonce` (0 once another run has
    begun), at `at`, of the content `generation` as of `position`: rows of both sides, and the keys
    that are `missing` in the target, `extra` there, `different`, or there more than once
    (`duplicate`). `unconfirmed` keys could not be compared again; `message` is why a table was not
    compared. `differs_since` is when it was first found to differ, empty once it was found equal.
    It never has values of rows.
    """

    nonce: int = 0
    at: str = ""
    result: VerifiedResult = VerifiedResult.NOT_COMPARED
    generation: int = 0
    source_rows: int = 0
    target_rows: int = 0
    missing: int = 0
    extra: int = 0
    different: int = 0
    duplicate: int = 0
    unconfirmed: int = 0
    position: Word = ""
    message: Text = ""
    differs_since: str = ""

    @property
    def differences(self) -> int:
        """Keys that are not equal on both sides."""
        return self.missing + self.extra + self.different + self.duplicate

    def after(self, before: VerifiedStatus | None) -> VerifiedStatus:
        """Keeps what an earlier verification found where this one has proven nothing."""
        if self.result is VerifiedResult.DIFFERENT:
            since = before.differs_since if before and before.generation == self.generation else ""
            return self.model_copy(update={"differs_since": since or self.at})
        if self.result is VerifiedResult.NOT_COMPARED and before is not None:
            return self.model_copy(update={"generation": before.generation, "differs_since": before.differs_since})
        return self


class VerificationState(StrEnum):
    """PENDING: it waits for its run. INCOMPLETE: nothing was found to differ, but not all was
    compared. FAILED: no run of it came to its end."""

    PENDING = "Pending"
    RUNNING = "Running"
    EQUAL = "Equal"
    DIFFERENT = "Different"
    INCOMPLETE = "Incomplete"
    FAILED = "Failed"

    @property
    def final(self) -> bool:
        return self not in (VerificationState.PENDING, VerificationState.RUNNING)


class VerificationStatus(StatusPart):
    """The last request to verify: `nonce` is that of `spec.verify`, `total` counts its tables, and
    the next numbers their results. `restarts` are the failures of its runs in a row, `message` is
    why it waits, is incomplete or has failed."""

    nonce: int
    state: VerificationState = VerificationState.PENDING
    started_at: str | None = None
    finished_at: str | None = None
    total: int = 0
    equal: int = 0
    different: int = 0
    not_compared: int = 0
    rows: int = 0
    differences: int = 0
    message: Text = ""
    restarts: Restarts = Field(default_factory=Restarts)
