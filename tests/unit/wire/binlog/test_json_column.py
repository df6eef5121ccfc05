"""JSON of many rows at once: the text that each alone gives, for shapes that many documents share,
for odd and for damaged ones."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any

import numpy as np
import pytest

from cdcsync_core.errors import DecodeError
from cdcsync_spark.wire.binlog.json.json_binary import json_text
from cdcsync_spark.wire.binlog.json.json_column import json_texts
from cdcsync_spark.wire.columns.cells import Cells
from cdcsync_spark.wire.columns.gather import Lanes
from support.binaryjson import Opaque, document

SHAPES: dict[str, Callable[[int], Any]] = {
    "numbers": lambda i: [i, -i, i * 1000, -i * 70_000, i * 2**33, 2**64 - 1 - i, 2**31 + i],
    "number": lambda i: i * 70_000,
    "literals": lambda i: [None, True, False, (None, True, False)[i % 3]],
    "doubles": lambda i: [i / 7, -1e300 * i, 0.0],
    "strings": lambda i: ["", "a" * i, "ü😀" * (i % 50), "x" * (i * 150)],
    "string": lambda i: "y" * i,
    "escapes": lambda i: {"a": 'say "hi"\n' if i % 3 else "plain", "b": "\x01\\"},
    "members": lambda i: {"id": i, "tags": ["a", None, {"deep": i / 4}], "name": f"n{i}"},
    "counts": lambda i: {"list": list(range(i % 4)), "object": {str(n): n for n in range(i % 3)}},
    "kinds": lambda i: {"v": [1, "s", None, 1.5, [1], {"k": 2}][i % 6]},
    "decimals": lambda i: {"price": Decimal(i) / 4, "tax": Decimal(-i).scaleb(-2), "sum": Decimal(10**30 + i)},
    "opaque": lambda i: {"day": Opaque(10, bytes(8)), "blob": Opaque(252, b"abc")},
    "deep": lambda i: [[[[[[[[[[i]]]]]]]]]],
    "one of its kind": lambda i: {f"key {i}": i} if i == 17 else {"key": i},
    "empty": lambda i: [{}, []][i % 2],
    "many": lambda i: list(range(300)),
    "keys that differ": lambda i: {f"key{i}": i, "é": 1},
}


def _cells(raw: Sequence[bytes | None]) -> Cells:
    parts = [r or b"" for r in raw]
    lengths = np.array([len(p) for p in parts], np.int64)
    valid = np.array([r is not None for r in raw])
    return Cells(Lanes(parts), np.cumsum(lengths) - lengths, 0, 0, lengths, None if valid.all() else valid)


@pytest.mark.parametrize("large", [False, True])
@pytest.mark.parametrize("name", list(SHAPES))
def test_documents_of_one_shape(name: str, large: bool) -> None:
    raw = [document(SHAPES[name](i), large=large) for i in range(200)]
    assert json_texts(_cells(raw)).to_pylist() == [json_text(r) for r in raw]


def test_all_shapes_mixed_with_nulls() -> None:
    """An empty value is a JSON null, NULL stays NULL."""
    raw: list[bytes | None] = [document(shape(i)) for i in range(60) for shape in SHAPES.values()]
    raw[::7] = [None] * len(raw[::7])
    raw[3::11] = [b""] * len(raw[3::11])
    assert json_texts(_cells(raw)).to_pylist() == [None if r is None else json_text(r) for r in raw]


@pytest.mark.parametrize("raw", [[], [None], [b""], [None, b"", document(1)]])
def test_few_documents(raw: list[bytes | None]) -> None:
    assert json_texts(_cells(raw)).to_pylist() == [None if r is None else json_text(r) for r in raw]


def _damaged(raw: bytes, rnd: random.Random) -> bytes:
    out = bytearray(raw)
    for _ in range(rnd.randint(1, 3)):
        at = rnd.randrange(len(out) + 1)
        out[at : at + rnd.randint(0, 2)] = bytes(
            rnd.choice((0, 1, 4, 12, 15, 128, 246, 255)) for _ in range(rnd.randint(0, 2))
        )
    return bytes(out)


@pytest.mark.parametrize("seed", range(6))
def test_damaged_documents(seed: int) -> None:
    """Documents that can still be read give the same texts; all together are an error if one of
    them is."""
    rnd = random.Random(seed)
    whole = [document(shape(i)) for i in range(40) for name, shape in SHAPES.items() if name != "many"]
    readable, texts = [], []
    for raw in whole + [_damaged(w, rnd) for w in whole * 3]:
        try:
            texts.append(json_text(raw))
            readable.append(raw)
        except DecodeError:
            with pytest.raises(DecodeError):
                json_texts(_cells([raw]))
    assert json_texts(_cells(readable)).to_pylist() == texts


@pytest.mark.parametrize("seed", range(6))
def test_a_damage_that_all_documents_share(seed: int) -> None:
    rnd = random.Random(seed)
    for shape in SHAPES.values():
        for _ in range(5):
            raw = _damaged(document(shape(9)), rnd)
            try:
                expected = json_text(raw)
            except DecodeError:
                with pytest.raises(DecodeError):
                    json_texts(_cells([raw] * 40))
            else:
                assert json_texts(_cells([raw] * 40)).to_pylist() == [expected] * 40


def test_elements_that_name_the_same_bytes_are_not_printed_for_ever() -> None:
    """A thousand elements of a damaged array name the same long string: more than the value
    holds."""
    text = document("x" * 1000)[1:]
    head = 4 + 1000 * 3
    entries = (b"\x0c" + head.to_bytes(2, "little")) * 1000
    raw = b"\x02" + (1000).to_bytes(2, "little") + (head + len(text)).to_bytes(2, "little") + entries + text
    with pytest.raises(DecodeError):
        json_text(raw)
    with pytest.raises(DecodeError):
        json_texts(_cells([raw] * 40))
