"""Compares source and target while both live.

Why it is right. Rows are compared value for value by 128-bit digests of the exact Arrow values that both sides have. A key whose
rows differ is only a candidate: source and target were read at different positions. So it is read again from both sides, and the log
says whether that proves anything: the source row is as of some place between LOW (taken before the read) and HIGH (taken after it, R1), the
target row as of the target's position. If the log holds no event of that key between the least and the furthest of these
places, both rows had to be equal, and the difference is real, whatever is written elsewhere meanwhile. If it holds one, the key is
read again once the stream has passed HIGH, a bounded number of times.

    plan -> splits -> digests on disk, by hash  \\
                                                 compare -> candidate keys -> settle (rounds) -> result
    target scan    -> digests on disk, by hash  /

Keys are never ordered here (R3): both sides are partitioned by the hash of their keys.
"""
