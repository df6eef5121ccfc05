"""The oracle of the stress tests sees every kind of difference: one that saw none would pass
everything."""

from __future__ import annotations

import pyarrow as pa
import pytest

from support.compare import compare, diagnose_walk

SOURCE = pa.table({"id": [3, 1, 2], "v": ["c", None, "b"], "d": [0.1, 2.0, None]})


@pytest.mark.parametrize("order", [[0, 1, 2], [2, 0, 1]])
def test_the_order_of_rows_is_no_difference(order: list[int]) -> None:
    assert not compare("t", SOURCE, SOURCE.take(order), ["id"])


def test_missing_and_extra_rows_are_named() -> None:
    target = pa.table({"id": [1, 2, 9], "v": [None, "b", "x"], "d": [2.0, None, 0.0]})

    found = compare("t", SOURCE, target, ["id"])

    assert (found.missing, found.extra, found.repeated, found.changed) == ([(3,)], [(9,)], [], [])
    assert "1 rows missing" in str(found)


def test_a_repeated_key_is_a_difference_though_its_values_are_right() -> None:
    found = compare("t", SOURCE, SOURCE.take([0, 1, 2, 0]), ["id"])

    assert found.repeated == [(3,)]
    assert found


@pytest.mark.parametrize(
    ("column", "values"), [("v", ["c", "", "b"]), ("v", ["c", None, None]), ("d", [0.1, 2.0, 0.0])]
)
def test_a_changed_value_is_a_difference_and_so_is_null(column: str, values: list[object]) -> None:
    target = SOURCE.set_column(SOURCE.schema.get_field_index(column), column, pa.array(values))

    found = compare("t", SOURCE, target, ["id"])

    assert [(key, name) for key, name, _, _ in found.changed] == [
        ((1,) if values[0] == "c" and values[1] == "" else (2,), column)
    ]


def test_keys_of_several_columns_are_compared_whole() -> None:
    source = pa.table({"a": [1, 1], "b": ["x", "y"], "v": [1, 2]})

    assert compare("t", source, source.slice(1), ["a", "b"]).missing == [(1, "x")]


def test_the_walk_tells_what_happened() -> None:
    steps = {1: 8, 2: 4, 3: 6, 4: 3, 5: 0, 6: 4, 7: 7}
    target = {1: 8, 3: 5, 6: 3, 5: 1, 7: 8}

    found = diagnose_walk(steps, target)

    assert [line.split(":")[0] for line in found] == ["walk 3", "walk 4", "walk 5", "walk 6", "walk 7"]
    assert ["lost" in line for line in found] == [True, True, False, True, False]
