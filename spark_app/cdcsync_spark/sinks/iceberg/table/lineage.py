"""Row lineage of format version 3, in files and in memory: each row has an id and the sequence
number of the commit that last changed it.

A file has them in two columns of reserved field ids, where another file had the row before. NULL,
and a file without the columns, mean what the file's entry in its manifest says: the id of its first
row and the number in it, and the entry's sequence number. Pure.
"""

from __future__ import annotations

from collections.abc import Collection

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from cdcsync_spark.sinks.lake.files.field_ids import FIELD_ID
from cdcsync_spark.sinks.lake.files.row_ids import LAST_UPDATED, ROW_ID

#: the columns in memory -> their names and reserved field ids in files
_IN_FILES = {ROW_ID: ("_row_id", 2147483540), LAST_UPDATED: ("_last_updated_sequence_number", 2147483539)}
FIELD_IDS = {name: number for name, (_, number) in _IN_FILES.items()}
#: a row without an id
NONE = -1


def file_fields(taken: Collection[str]) -> dict[str, pa.Field]:
    """The columns of files, by their names in memory. Readers go by field ids; so a name gives way
    to a column that has it already."""
    names = {name.casefold() for name in taken}
    fields = {}
    for memory, (name, number) in _IN_FILES.items():
        while name in names:
            name += "_"
        fields[memory] = pa.field(name, pa.int64(), metadata={FIELD_ID: str(number).encode()})
    return fields


def row_ids(first_id: int | None, column: pa.Array | pa.ChunkedArray, first: int) -> npt.NDArray[np.int64]:
    """The ids of the rows of a file from its row `first` on, of which `column` has those that are
    written down. `first_id` is the id of the file's first row; `NONE` where that is None, because a
    table of before version 3 has given it none yet."""
    if first_id is None:
        return filled(column, np.full(len(column), NONE))
    start = first_id + first
    return filled(column, np.arange(start, start + len(column)))


def filled(column: pa.Array | pa.ChunkedArray, inherited: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """The column with `inherited` in place of NULL."""
    if column.null_count == len(column):
        return inherited
    plain = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    missing = plain.is_null().to_numpy(zero_copy_only=False)
    return np.where(missing, inherited, plain.fill_null(NONE).to_numpy(zero_copy_only=False))


def nullable(ids: npt.NDArray[np.int64]) -> pa.Array:
    """NULL in place of `NONE`."""
    return pa.array(ids, pa.int64(), mask=ids == NONE)
