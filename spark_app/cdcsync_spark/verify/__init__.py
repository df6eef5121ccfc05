"""Compares source and target while both live.

Why it is right. Rows are compared value for value by 128-bit digests of the exact Arrow values that
both sides have. A key whose rows differ is only a candidate: source and target were read at
different positions. So candidates are reread from both sides, the target after the stream has
passed that position of the source, and what still differs is decided by the binlog. The source row
is as of some place between LOW (taken before the read) and HIGH (taken after it, R1), the target
row as of the target's position. Between the least and the furthest of these positions the binlog
holds

- no change of that key: both rows had to be equal, the difference is real;
- changes: each carries the whole row before and after. The target's row must be the one after the
  last transaction that its position covers, the source's row must be one that the key had in
  between; if either is not, the difference is real.

So nothing has to stand still: not even a row that every transaction changes. A topic that is
written while it is read is as of a place between two positions, key by key; then its row must be
one that the key had there. While a table catches up, a snapshot may have read a row after the
position, up to its high watermark (R2): its row must be one that the key had since, and the stream
writes it again.

    plan -> splits -> digests by hash  \\
                                        compare -> candidate keys -> confirm -> keys that differ
    target scan    -> digests by hash  /

Keys are never ordered here (R3): both sides are partitioned by the hash of their keys. Memory is
bounded by a piece of a partition and the most candidates that are kept; local disk takes 64 bytes a
row and the source's keys.
"""
