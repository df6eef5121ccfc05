"""Texts joined row by row, in one pass over the bytes of the result.

Why it exists: a record is dozens of short texts behind each other. `binary_join_element_wise` of
Arrow takes 10 ns for each of them, and a join of joins copies every byte again. Here the distinct
texts are one array, a row of the result is a list of indices into it, and one `take` copies the
bytes in their order: 6 ns for each [measured]. The n texts of a row lie behind each other then, so
every n-th offset is where a row begins.

No result may exceed 2 GiB in sum (Arrow's offsets), which `take` refuses.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

_Indices: TypeAlias = npt.NDArray[np.int32]
_Mask: TypeAlias = npt.NDArray[np.bool_]
#: the index of the empty text
_EMPTY = 0


class Pick(NamedTuple):
    """For each row of a join the `parts` of their row `at`; `otherwise` where it is NULL."""

    parts: Sequence[Part]
    at: pa.Array
    otherwise: str = "null"


#: one side of a join: a text for all rows, or one for each, where NULL is an empty text
Part: TypeAlias = "str | pa.Array | Pick"


def join(count: int, *parts: Part) -> pa.Array:
    """The parts of each of `count` rows behind each other, as a string array without a NULL."""
    texts = _Texts()
    columns = list(_columns(texts, parts, np.arange(count, dtype=np.int32), None)) or [_EMPTY]
    indices = np.empty((count, len(columns)), np.int32)
    for i, column in enumerate(columns):
        indices[:, i] = column
    taken = texts.all.take(pa.array(indices.reshape(-1)))
    ends = np.frombuffer(taken.buffers()[1], np.int32, count * len(columns) + 1)
    offsets = np.ascontiguousarray(ends[:: len(columns)])
    return pa.StringArray.from_buffers(count, pa.py_buffer(offsets), taken.buffers()[2])


class _Texts:
    """The distinct texts of a join."""

    def __init__(self) -> None:
        self._arrays, self._count, self._begins = [pa.array([""])], 1, dict[str | int, int]()

    def begin(self, part: str | pa.Array) -> int:
        """The index of its first text."""
        key = part if isinstance(part, str) else id(part)
        if key not in self._begins:
            self._begins[key] = self._count
            self._arrays.append(pa.array([part]) if isinstance(part, str) else part)
            self._count += len(self._arrays[-1])
        return self._begins[key]

    @property
    def all(self) -> pa.Array:
        return pa.concat_arrays(self._arrays)


def _columns(texts: _Texts, parts: Sequence[Part], at: _Indices, taken: _Mask | None) -> Iterator[_Indices | int]:
    """The indices of the texts, a column each; of the parts' rows `at`, nothing where not
    `taken`."""
    for is_text, run in groupby(parts, lambda part: isinstance(part, str)):
        if is_text:
            yield _masked(texts.begin("".join(part for part in run if isinstance(part, str))), taken)
            continue
        for part in run:
            if isinstance(part, Pick):
                yield from _picked(texts, part, at, taken)
            else:
                yield _masked(at + texts.begin(part), taken)


def _picked(texts: _Texts, pick: Pick, at: _Indices, taken: _Mask | None) -> Iterator[_Indices | int]:
    rows = pc.fill_null(pick.at, 0).to_numpy(zero_copy_only=False).astype(np.int32, copy=False)[at]
    if pick.at.null_count:
        is_picked = pick.at.is_valid().to_numpy(zero_copy_only=False)[at]
        yield _masked(texts.begin(pick.otherwise), ~is_picked if taken is None else ~is_picked & taken)
        taken = is_picked if taken is None else is_picked & taken
        if not taken.any():
            return
    yield from _columns(texts, pick.parts, rows, taken)


def _masked(indices: _Indices | int, taken: _Mask | None) -> _Indices | int:
    return indices if taken is None else np.where(taken, indices, np.int32(_EMPTY))
