"""The members of an ENUM or SET column, as the binlog names them, and the texts of its values.

Why it is right: a member whose bytes are no text stops the rows that have it, as any other text
does, and no others: so does a snapshot, which reads values and no members.
"""

from __future__ import annotations

from typing import NamedTuple

from cdcsync_core.errors import DecodeError
from cdcsync_spark.wire.binlog.facts import MappedColumn
from cdcsync_spark.wire.columns.charset import charset_of
from cdcsync_spark.wire.columns.replacement import checked, refused


class Members(NamedTuple):
    """`names` in the column's order: None for one that has none."""

    names: tuple[str | None, ...]
    raw: tuple[bytes, ...]
    charset: str

    @property
    def nameless(self) -> list[int]:
        return [number for number, name in enumerate(self.names) if name is None]

    def refused(self, number: int) -> DecodeError:
        return refused(self.raw[number], self.charset)

    def enum_text(self, number: int) -> str:
        """The value 0 is what the server stored for an invalid one; it prints nothing. Raises
        DecodeError and IndexError."""
        return self._name(number - 1) if number else ""

    def set_text(self, bits: int) -> str:
        """The names of a SET's bits; raises DecodeError."""
        if bits >> len(self.names):
            raise DecodeError(f"the bits {bits:#x} of a SET with {len(self.names)} members")
        return ",".join(self._name(i) for i in range(len(self.names)) if bits >> i & 1)

    def _name(self, number: int) -> str:
        name = self.names[number]
        if name is None:
            raise self.refused(number)
        return name


def members(mapped: MappedColumn, *, replaced: bool) -> Members:
    """Raises DecodeError for a column without a character set."""
    charset = text_charset(mapped)
    decode = checked(charset, replaced=replaced)

    def name(raw: bytes) -> str | None:
        try:
            return decode(raw)
        except DecodeError:
            return None

    raw = mapped.members or ()
    return Members(tuple(name(m) for m in raw), raw, charset)


def text_charset(mapped: MappedColumn) -> str:
    """The column's character set; raises DecodeError."""
    if mapped.collation is None:
        raise DecodeError("text without a character set in its TABLE_MAP event", needed="binlog_row_metadata=FULL")
    return charset_of(mapped.collation)
