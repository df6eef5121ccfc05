"""128-bit digests of rows, over the exact values of their Arrow columns.

Every value becomes words of 32 bits: numbers and times their own bits (so -0.0 is not 0.0), NULLs a
bit of their own; texts and binaries their length, and all of them together 128 bits of a keyed
BLAKE2. So two rows have the same words if and only if they are equal, but for a collision of
BLAKE2. The words are hashed by multilinear hashing, `(m0 + sum of m_i * word_i mod 2^64) >> 32`,
which is strongly universal for random 64-bit `m` (D. Lemire, O. Kaser, "Strongly universal string
hashing is fast", 2014): four independent ones let two different rows collide with probability
2^-128, whatever the rows are, because the multipliers are drawn at random for each verification.
Everything but BLAKE2 is a few vector operations a column.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from cdcsync_core.tables.capture import Capture

Words = npt.NDArray[np.uint64]
#: shape (rows, 2): the two halves of each row's digest
Digests = npt.NDArray[np.uint64]

_PIECE_BYTES = 16 << 20
_LOW = np.uint64(0xFFFFFFFF)
_HALF = np.uint64(32)


@dataclass(frozen=True)
class Digester:
    """Digests of the columns `names` of a batch. `seed` is 32 random bytes; digests of different
    seeds have nothing in common."""

    names: tuple[str, ...]
    seed: bytes

    def of(self, batch: pa.RecordBatch) -> Digests:
        """One digest a row, in the order of the rows."""
        parts = [self._piece(piece) for piece in _pieces(batch.select(list(self.names)))]
        return np.concatenate(parts) if parts else np.empty((0, 2), np.uint64)

    def _piece(self, batch: pa.RecordBatch) -> Digests:
        columns = [_fixed(c) for c in batch.columns if not _is_long(c.type)]
        long = [_as_binary(c) for c in batch.columns if _is_long(c.type)]
        words = np.column_stack([_null_words(batch), *columns, *self._long_words(long)])
        multipliers, offsets = _multipliers(self.seed, words.shape[1])
        with np.errstate(over="ignore"):
            hashed = (words @ multipliers + offsets) >> _HALF
        return np.column_stack([hashed[:, 0] << _HALF | hashed[:, 1], hashed[:, 2] << _HALF | hashed[:, 3]])

    def _long_words(self, columns: Sequence[pa.Array]) -> list[Words]:
        """Lengths, then the digest of all contents of a row: both together identify every
        sequence of contents."""
        if not columns:
            return []
        lengths = [pc.binary_length(c).to_numpy(zero_copy_only=False).astype(np.uint64) for c in columns]
        joined = columns[0] if len(columns) == 1 else pc.binary_join_element_wise(*columns, b"")
        digests = b"".join([hashlib.blake2b(row, digest_size=16, key=self.seed).digest() for row in joined.to_pylist()])
        return [*lengths, np.frombuffer(digests, "<u4").reshape(-1, 4).astype(np.uint64)]


@dataclass(frozen=True)
class Digesters:
    """The digesters of keys and of whole rows of one table, for one verification."""

    keys: Digester
    rows: Digester

    @classmethod
    def of(cls, table: Capture, seed: bytes) -> Digesters:
        return cls(Digester(table.key, seed), Digester(tuple(c.name for c in table.captured), seed))


class DigestSet:
    """A set of digests with fast membership of many."""

    def __init__(self, digests: Digests) -> None:
        self._digests = digests
        self._exact = {d.tobytes() for d in digests}

    def __len__(self) -> int:
        return len(self._exact)

    def where(self, digests: Digests) -> list[int]:
        """The indices of those that are in the set."""
        likely = np.flatnonzero(np.isin(digests[:, 0], self._digests[:, 0]))
        return [int(i) for i in likely if digests[i].tobytes() in self._exact]


@lru_cache(maxsize=64)
def _multipliers(seed: bytes, words: int) -> tuple[Words, Words]:
    generator = np.random.default_rng(int.from_bytes(seed, "big"))
    drawn = generator.integers(0, 2**64, (words + 1, 4), dtype=np.uint64)
    return drawn[1:], drawn[0]


def _pieces(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Slices of bounded size: joined texts must stay below 2 GiB, and the words within the
    cache."""
    if batch.num_rows > 1 and (batch.nbytes > _PIECE_BYTES or batch.num_rows > 16384):
        half = batch.num_rows // 2
        yield from _pieces(batch.slice(0, half))
        yield from _pieces(batch.slice(half))
    elif batch.num_rows:
        yield batch


def _null_words(batch: pa.RecordBatch) -> Words:
    """A bit per column, 32 in a word."""
    words = np.zeros((batch.num_rows, (batch.num_columns + 31) // 32), np.uint64)
    for i, column in enumerate(batch.columns):
        if column.null_count:
            words[:, i // 32] |= _is_null(column).astype(np.uint64) << np.uint64(i % 32)
    return words


def _is_null(column: pa.Array) -> npt.NDArray[np.bool_]:
    flags: npt.NDArray[np.bool_] = column.is_null().to_numpy(zero_copy_only=False)
    return flags


def _is_long(kind: pa.DataType) -> bool:
    return pa.types.is_string(kind) or pa.types.is_binary(kind) or pa.types.is_list(kind)


def _as_binary(column: pa.Array) -> pa.Array:
    """The bytes of each value; NULL is empty here and known by its bit."""
    if pa.types.is_list(column.type):
        return pa.array([b"" if v is None else np.asarray(v, "<f4").tobytes() for v in column.to_pylist()], pa.binary())
    binary = column.cast(pa.binary())
    return binary.fill_null(b"") if binary.null_count else binary


def _fixed(column: pa.Array) -> Words:
    """The value's own bits, shape (rows, words); 0 where it is NULL, because the bits there are
    undefined."""
    words = _WORDS[column.type.bit_width](column)
    if column.null_count:
        words[_is_null(column)] = 0
    return words


def _bits(column: pa.Array, kind: str) -> npt.NDArray[np.unsignedinteger]:
    """The column's values as unsigned integers."""
    buffer = column.buffers()[1]
    return np.frombuffer(buffer, kind, count=column.offset + len(column))[column.offset :]


def _booleans(column: pa.Array) -> Words:
    return column.cast(pa.uint8()).fill_null(0).to_numpy(zero_copy_only=False).astype(np.uint64).reshape(-1, 1)


def _one_word(kind: str) -> Callable[[pa.Array], Words]:
    return lambda column: _bits(column, kind).astype(np.uint64).reshape(-1, 1)


def _two_words(column: pa.Array) -> Words:
    bits = _bits(column, "<u8")
    return np.column_stack([bits & _LOW, bits >> _HALF])


def _four_words(column: pa.Array) -> Words:
    raw = np.frombuffer(column.buffers()[1], "<u4", count=4 * (column.offset + len(column)))
    return raw[4 * column.offset :].reshape(-1, 4).astype(np.uint64)


#: how a value of so many bits becomes words
_WORDS: dict[int, Callable[[pa.Array], Words]] = {
    1: _booleans,
    8: _one_word("u1"),
    16: _one_word("<u2"),
    32: _one_word("<u4"),
    64: _two_words,
    128: _four_words,
}
