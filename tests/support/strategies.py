"""Hypothesis strategies for the core's value objects: small universes, in which overlaps and gaps
are the rule."""

from __future__ import annotations

from hypothesis import strategies as st

from cdcsync_core.positions.gtid import Gtid, GtidSet
from cdcsync_core.positions.mariadb_gtid import MariaDbGtidPos
from cdcsync_core.positions.position import FilePosition, GtidPosition, LogOffset, Position

SOURCES = (
    "3e11fa47-71ca-11e1-9e33-c80aa9429562",
    "3e11fa47-71ca-11e1-9e33-c80aa9429562:batch",
    "3e11fa47-71ca-11e1-9e33-c80aa9429562:batch_2",
    "ffffffff-71ca-11e1-9e33-c80aa9429562",
)

gtids = st.builds(Gtid, st.sampled_from(SOURCES), st.integers(1, 12))
sets_of_gtids = st.sets(gtids, max_size=25)
log_offsets = st.builds(
    LogOffset,
    st.sampled_from(("binlog.000001", "binlog.000002", "binlog.999999", "binlog.1000000")),
    st.integers(4, 12),
)


def gtid_set(members: set[Gtid]) -> GtidSet:
    """The set of exactly these transactions."""
    return GtidSet().with_gtids(members)


gtid_sets = sets_of_gtids.map(gtid_set)
file_positions = st.builds(
    FilePosition,
    log_offsets,
    st.sampled_from(("", "0-1-7")).map(MariaDbGtidPos.parse),
    st.sampled_from((0, 1700000000)),
)
gtid_positions = st.builds(GtidPosition, gtid_sets, st.none() | log_offsets)
positions: st.SearchStrategy[Position] = file_positions | gtid_positions
#: two and three positions of one kind
position_pairs = st.tuples(file_positions, file_positions) | st.tuples(gtid_positions, gtid_positions)
position_triples = st.tuples(file_positions, file_positions, file_positions) | st.tuples(
    gtid_positions, gtid_positions, gtid_positions
)
