"""MySQL's binary JSON of a whole column: documents of one shape are read and printed in step.

A table's documents mostly have the same members, so the members of many documents are columns
themselves: their kinds, numbers and strings are read as those of rows, and texts are joined as
Arrow joins strings. `jsonb` is the definition; whatever is rare or looks wrong (a shape of few
documents, a kind that is not often stored, anything beyond a document's end) leaves the whole
document to it.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from cdcsync_core.errors import DecodeError
from cdcsync_spark.wire.binlog.decimals import decimal_texts
from cdcsync_spark.wire.binlog.images.image import decimal_width
from cdcsync_spark.wire.binlog.json.json_binary import json_text, quote
from cdcsync_spark.wire.binlog.number import shortest_double
from cdcsync_spark.wire.columns.cells import Cells
from cdcsync_spark.wire.columns.gather import Cursors, Flags, Lanes, indices, numbers, strings, utf8
from cdcsync_spark.wire.columns.texts import each_once

#: fewer documents of a shape are printed one by one
_FEW = 32
_MAX_DEPTH = 8
_MAX_MEMBERS = 256
_DECIMAL = 246
_MAX_PRECISION, _MAX_SCALE = 65, 30
_LITERALS = strings(["null", "true", "false"])
_INLINED = (4, 5, 6)
_INLINED_LARGE = (4, 5, 6, 7, 8)

_Kinds = npt.NDArray[np.uint8]


def json_texts(cells: Cells) -> pa.StringArray:
    """The texts of a JSON column; raises DecodeError."""
    starts, sizes = cells.starts, cells.sizes
    written = np.flatnonzero(sizes)
    texts = _Documents(cells.lanes, starts[written], sizes[written]).texts()
    if len(written) == len(sizes):
        return texts
    # an empty value is a JSON null
    place = np.full(len(sizes), len(written), np.int32)
    place[written] = np.arange(len(written), dtype=np.int32)
    return pa.concat_arrays([texts, strings(["null"])]).take(numbers(place, pa.int32(), cells.valid))


class _Documents:
    """`left` bounds what is read of each, as in `jsonb`; `odd` are those that are left to it.

    Values are described by `ids`, the documents that they are of, ascending, each at most once, and
    by where they lie.
    """

    def __init__(self, lanes: Lanes, begins: Cursors, sizes: Cursors) -> None:
        self._lanes = lanes
        self._begins = begins
        self._sizes = sizes
        self._ends = begins + sizes
        self._left = sizes.copy()
        self._odd = np.zeros(len(begins), np.bool_)

    def texts(self) -> pa.StringArray:
        ids = np.arange(len(self._begins))
        values = self._values(ids, self._lanes.byte(self._begins), self._begins + 1, 0)
        odd = np.flatnonzero(self._odd)
        if not len(odd):
            return values
        raw = self._lanes.slices(self._begins[odd], self._sizes[odd]).to_pylist()
        ids[odd] = len(ids) + np.arange(len(odd))
        return pa.concat_arrays([values, strings([json_text(r) for r in raw])]).take(indices(ids))

    def _values(self, ids: Cursors, kinds: _Kinds, at: Cursors, depth: int) -> pa.StringArray:
        """The texts of values of any kinds."""
        return _by_group(kinds, lambda kind, part: self._of_kind(kind, ids[part], at[part], depth))

    def _of_kind(self, kind: int, ids: Cursors, at: Cursors, depth: int) -> pa.StringArray:
        if len(ids) < _FEW or kind not in _READERS or depth > _MAX_DEPTH:
            return self._leave(ids)
        return _READERS[kind](self, kind, ids, at, depth)

    def _leave(self, ids: Cursors) -> pa.StringArray:
        """To `jsonb`; what is printed here is not used."""
        self._odd[ids] = True
        return pa.repeat("", len(ids))

    def _checked(self, ids: Cursors, at: Cursors, lengths: Cursors) -> tuple[Cursors, Cursors]:
        """Where the values are that lie in their documents; the others have no bytes, and their
        documents are odd."""
        self._left[ids] -= lengths
        wrong: Flags = (at + lengths > self._ends[ids]) | (self._left[ids] < 0)
        if wrong.any():
            self._odd[ids[wrong]] = True
            return np.where(wrong, self._begins[ids], at), np.where(wrong, 0, lengths)
        return at, lengths

    # -- scalars

    def _number(self, kind: int, ids: Cursors, at: Cursors, _: int) -> pa.StringArray:
        width, signed = {5: (2, True), 6: (2, False), 7: (4, True), 8: (4, False), 9: (8, True), 10: (8, False)}[kind]
        at, _lengths = self._checked(ids, at, np.full(len(ids), width))
        read = self._lanes.signed if signed else self._lanes.little
        values = read(at, width)
        return numbers(values, pa.from_numpy_dtype(values.dtype)).cast(pa.string())

    def _literal(self, _: int, ids: Cursors, at: Cursors, __: int) -> pa.StringArray:
        at, _lengths = self._checked(ids, at, np.ones(len(ids), np.int64))
        which = self._lanes.byte(at)
        self._odd[ids[which > 2]] = True
        return _LITERALS.take(indices(np.minimum(which, 2)))

    def _double(self, _: int, ids: Cursors, at: Cursors, __: int) -> pa.StringArray:
        at, lengths = self._checked(ids, at, np.full(len(ids), 8))
        if (lengths == 0).any():
            return self._leave(ids)
        return each_once(self._lanes.slices(at, lengths), shortest_double)

    def _string(self, _: int, ids: Cursors, at: Cursors, __: int) -> pa.StringArray:
        lengths, at = self._length(at)
        return self._quoted(ids, at, lengths)

    def _quoted(self, ids: Cursors, at: Cursors, lengths: Cursors) -> pa.StringArray:
        at, lengths = self._checked(ids, at, lengths)
        raw = self._lanes.slices(at, lengths)
        try:
            text = utf8(raw)
        except DecodeError:
            return self._leave(ids)
        if _needs_escapes(raw):
            return strings([quote(t) for t in text.to_pylist()])
        return pc.binary_join_element_wise('"', text, '"', "")

    def _length(self, at: Cursors) -> tuple[Cursors, Cursors]:
        """Lengths of seven bits a byte, and where they end; one that goes on is made too long for
        any document."""
        byte = self._lanes.byte(at).astype(np.int64)
        lengths, at = byte & 0x7F, at + 1
        for shift in (7, 14, 21, 28):
            more = byte > 0x7F
            if not more.any():
                return lengths, at
            byte = np.where(more, self._lanes.byte(at).astype(np.int64), 0)
            lengths, at = lengths | (byte & 0x7F) << shift, at + more
        return np.where(byte > 0x7F, 1 << 40, lengths), at

    def _opaque(self, _: int, ids: Cursors, at: Cursors, __: int) -> pa.StringArray:
        """Reads decimals; the other types that JSON has not are left."""
        kinds = self._lanes.byte(at)
        lengths, at = self._length(at + 1)
        if (kinds != _DECIMAL).any():
            return self._leave(ids)
        at, lengths = self._checked(ids, at, lengths)
        if (lengths < 3).any():
            return self._leave(ids)
        return _by_group(
            self._lanes.little(at, 2), lambda form, part: self._decimal(form, ids[part], at[part], lengths[part])
        )

    def _decimal(self, form: int, ids: Cursors, at: Cursors, lengths: Cursors) -> pa.StringArray:
        precision, scale = form & 0xFF, form >> 8
        if precision > _MAX_PRECISION or scale > min(_MAX_SCALE, precision) or precision == 0:
            return self._leave(ids)
        width = decimal_width(precision, scale)
        if (lengths != 2 + width).any():
            return self._leave(ids)
        return decimal_texts(Cells(self._lanes, at, 2, width, None, None), precision, scale, 0)

    # -- containers

    def _container(self, kind: int, ids: Cursors, at: Cursors, depth: int) -> pa.StringArray:
        counts = self._lanes.little(at, 4 if kind & 1 else 2).astype(np.int64)
        return _by_group(counts, lambda count, part: self._of_count(kind, count, ids[part], at[part], depth))

    def _of_count(self, kind: int, count: int, ids: Cursors, at: Cursors, depth: int) -> pa.StringArray:
        """Containers of `count` elements, which begin at `at`: the number of them, the size, keys,
        elements."""
        width = 4 if kind & 1 else 2
        named = kind < 2
        keys, entries = 2 * width, 2 * width + (count * (width + 2) if named else 0)
        if len(ids) < _FEW or count > _MAX_MEMBERS:
            return self._leave(ids)
        sizes = self._lanes.little(at, width, width).astype(np.int64)
        self._left[ids] -= count
        if (np.maximum(sizes, entries + count * (width + 1)) > self._ends[ids] - at).any():
            return self._leave(ids)
        pieces: list[pa.StringArray | str] = []
        for i in range(count):
            pieces.append(", " if i else "")
            if named:
                pieces += [self._key(ids, at, keys + i * (width + 2), width), ": "]
            pieces.append(self._element(ids, at, entries + i * (width + 1), width, depth))
        first, last = "{}" if named else "[]"
        if not count:
            return pa.repeat(first + last, len(ids))
        return pc.binary_join_element_wise(first, *pieces, last, "")

    def _key(self, ids: Cursors, at: Cursors, entry: int, width: int) -> pa.StringArray:
        offsets = self._lanes.little(at, width, entry).astype(np.int64)
        return self._quoted(ids, at + offsets, self._lanes.little(at, 2, entry + width).astype(np.int64))

    def _element(self, ids: Cursors, at: Cursors, entry: int, width: int, depth: int) -> pa.StringArray:
        """A value itself if it is small enough, else where it is, seen from its container's
        beginning."""
        kinds = self._lanes.byte(at, entry)
        inlined = np.isin(kinds, _INLINED_LARGE if width == 4 else _INLINED)
        elsewhere = at + self._lanes.little(at, width, entry + 1).astype(np.int64)
        where = np.where(inlined, at + (entry + 1), elsewhere)
        where, _lengths = self._checked(ids, where, np.zeros(len(ids), np.int64))
        return self._values(ids, kinds, where, depth + 1)


def _by_group(groups: npt.NDArray[np.integer], texts: Callable[[int, Cursors], pa.StringArray]) -> pa.StringArray:
    """`texts` of the rows of each group, in the order of the rows."""
    if not len(groups):
        return strings([])
    first = int(groups[0])
    if (groups == first).all():
        return texts(first, np.arange(len(groups)))
    parts = [np.flatnonzero(groups == g) for g in np.unique(groups)]
    texts_by_group = pa.concat_arrays([texts(int(groups[p[0]]), p) for p in parts])
    order = np.empty(len(groups), np.int64)
    order[np.concatenate(parts)] = np.arange(len(groups))
    return texts_by_group.take(indices(order))


def _needs_escapes(raw: pa.BinaryArray) -> bool:
    data = raw.buffers()[2]
    if data is None:
        return False
    octets = np.frombuffer(data, np.uint8)
    return bool(((octets < 0x20) | (octets == ord('"')) | (octets == ord("\\"))).any())


_Read = Callable[[_Documents, int, Cursors, Cursors, int], pa.StringArray]
_READERS: dict[int, _Read] = {
    **dict.fromkeys((0, 1, 2, 3), _Documents._container),
    4: _Documents._literal,
    **dict.fromkeys((5, 6, 7, 8, 9, 10), _Documents._number),
    11: _Documents._double,
    12: _Documents._string,
    15: _Documents._opaque,
}
