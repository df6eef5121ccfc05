"""What a preflight check says: the vocabulary that checks of the server and of tables share."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from cdcsync_core.errors import CdcError, Reason, fail


class Level(StrEnum):
    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


@dataclass(frozen=True)
class Check:
    """`name` is the variable or object; `found`, `needed`, `remedy` as in `CdcError`; `table` is
    `database.table` or empty."""

    name: str
    level: Level
    found: str
    needed: str = ""
    remedy: str = ""
    reason: Reason = Reason.INTERNAL_ERROR
    table: str = ""

    @property
    def error(self) -> CdcError:
        """A failing check as the error that it means."""
        return fail(self.reason, self._render, needed=self.needed, remedy=self.remedy, table=self.table)

    @property
    def line(self) -> str:
        """One line for people; the same form as an error's."""
        return self.error.message

    @property
    def _render(self) -> str:
        return f"{self.name}: {self.found}"


def passed(name: str, found: str) -> Check:
    return Check(name, Level.OK, found)


def warned(name: str, found: str, needed: str = "", remedy: str = "", table: str = "") -> Check:
    return Check(name, Level.WARN, found, needed, remedy, table=table)


def failed(name: str, reason: Reason, found: str, needed: str = "", remedy: str = "", table: str = "") -> Check:
    return Check(name, Level.FAIL, found, needed, remedy, reason, table)


def refused(name: str, error: CdcError) -> Check:
    """A failing check from the error that the check ran into."""
    return Check(name, Level.FAIL, error.found, error.needed, error.remedy, error.reason, error.table)
