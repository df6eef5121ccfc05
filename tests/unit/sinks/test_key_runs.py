"""Searching a run of codes: the same places with fences and without, whatever the lengths and
however often a code comes."""

from __future__ import annotations

import numpy as np
import pytest

from cdcsync_spark.sinks.lake.key_runs import FENCED, Run


@pytest.mark.parametrize("distinct", [0.5, 3])
@pytest.mark.parametrize("length", [1, 2, FENCED - 1, FENCED, FENCED + 1, 2 * FENCED, 2 * FENCED + 1, 70_001])
def test_fences_change_nothing(length: int, distinct: float) -> None:
    random, top = np.random.default_rng(length), max(2, int(length * distinct))
    codes = np.sort(random.integers(0, top, length).astype(np.uint64))
    wanted = np.sort(random.integers(0, top + 2, 500).astype(np.uint64))
    plain, fenced = (Run(codes, None, 0, fences).find(wanted) for fences in (None, codes[::FENCED].copy()))
    known = [(q, row) for q, code in enumerate(wanted) for row in np.flatnonzero(codes == code)]
    assert sorted(zip(fenced.query, fenced.row, strict=True)) == known
    assert (plain.query == fenced.query).all()
    assert (plain.row == fenced.row).all()
