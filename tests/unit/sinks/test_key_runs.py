"""Runs of codes: the same places with fences and without, whatever the lengths and however often a
code comes, and the same entries in one run as in those that it was made of."""

from __future__ import annotations

from dataclasses import replace
from itertools import accumulate, pairwise
from random import Random

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cdcsync_spark.sinks.lake.keys.key_runs import FENCED, Codes, Hits, Run, chained, merged, sorted_runs
from cdcsync_spark.sinks.lake.keys.scratch import Scratch


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


def entries(run: Run) -> list[tuple[int, int, int]]:
    codes, hits = run.part(0, len(run))
    return list(zip(codes.tolist(), hits.file.tolist(), hits.row.tolist(), strict=True))


def runs_of(files: list[list[int]], scratch: Scratch, block: int) -> list[Run]:
    runs = []
    for number, codes in enumerate(files):
        pieces: list[Codes] = [np.array(codes[i : i + 7], np.uint64) for i in range(0, len(codes), 7)]
        runs += [replace(run, file=number) for run in sorted_runs(pieces, 0, scratch, block)]
    return runs


FILES = st.lists(st.lists(st.integers(0, 30), max_size=40), min_size=1, max_size=6)


@settings(max_examples=60, deadline=None)
@given(files=FILES, block=st.integers(1, 9), in_memory=st.integers(0, 20), gone=st.integers(0, 31))
def test_one_run_has_the_entries_of_all(
    tmp_path_factory: pytest.TempPathFactory, files: list[list[int]], block: int, in_memory: int, gone: int
) -> None:
    """Merged in blocks of any size, even of less than one entry a run."""
    scratch = Scratch(tmp_path_factory.getbasetemp(), in_memory)
    everything = [(code, number, row) for number, codes in enumerate(files) for row, code in enumerate(codes)]
    runs = runs_of(files, scratch, block)
    assert sorted(entry for run in runs for entry in entries(run)) == sorted(everything)

    def keep(hits: Hits) -> npt.NDArray[np.bool_]:
        return np.asarray(hits.row != gone)

    one = merged(runs, keep, scratch, block)
    assert entries(one) == sorted(entries(one), key=lambda entry: entry[0])
    assert sorted(entries(one)) == sorted(entry for entry in everything if entry[2] != gone)
    assert sorted(entries(merged([one, *runs[:1]], keep, scratch, block))) == sorted(
        entry for run in (one, *runs[:1]) for entry in entries(run) if entry[2] != gone
    )


@settings(max_examples=60, deadline=None)
@given(sizes=st.lists(st.integers(1, 40), min_size=1, max_size=6), order=st.randoms(), overlap=st.booleans())
def test_files_that_follow_each_other_are_one_run_without_rows(
    tmp_path_factory: pytest.TempPathFactory, sizes: list[int], order: Random, overlap: bool
) -> None:
    scratch = Scratch(tmp_path_factory.getbasetemp(), 10)
    ends = [*accumulate(sizes, initial=0)]
    files = [list(range(2 * start, 2 * end, 2)) for start, end in pairwise(ends)]
    files[0] += [2 * ends[1]] if overlap and len(files) > 1 else []
    order.shuffle(files)
    runs = runs_of(files, scratch, 8)
    one = chained(runs, scratch, 8)
    assert (one is None) == (overlap and len(files) > 1)
    if one is not None:
        again = chained([one, *runs_of([[2 * ends[-1]]], scratch, 8)], scratch, 8)
        assert again is not None
        everything = sorted((code, number, row) for number, codes in enumerate(files) for row, code in enumerate(codes))
        assert entries(one) == everything
        assert entries(again) == [*everything, (2 * ends[-1], 0, 0)]
        found = again.find(np.array([e[0] for e in everything], np.uint64))
        assert sorted(zip(found.file, found.row, strict=True)) == sorted(e[1:] for e in everything)
