"""A change of the definition at any moment of a table's life, and a death at any failpoint on its
way: the copy equals the source whenever the table says so, and at the end (R2, R4, R9).

Placed before LOW, between LOW and HIGH, between splits and waves, behind HIGH, at a publication and
in the stream; of each class of statements. `support.step_lives` says what is real here.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import replace
from itertools import product
from pathlib import Path

import pytest
from _pytest.mark.structures import ParameterSet
from hypothesis import given, settings
from hypothesis import strategies as st

from cdcsync_core.tables.source_table import Column, SourceType
from cdcsync_spark.wire.sql.syntax.text import Statement
from support.altered_source import AlteredSource
from support.step_lives import Action, Moment, SteppedLife

#: where the statement runs; the second LOW is between waves
PLACES: tuple[Moment, ...] = (
    ("planned", 1), ("table-prepared", 1), ("before LOW", 1), ("LOW", 1), ("split-read", 1), ("before HIGH", 1), ("HIGH", 1),
    ("wave-committed", 1), ("LOW", 2), ("split-read", 3), ("before HIGH", 2), ("HIGH", 2), ("wave-committed", 2),
    ("before-publish", 1), ("published", 1), ("batch-read", 1), ("batch-read", 6),
)  # fmt: skip
STREAM = ("batch-read", 6)


def runs(sql: str) -> Action:
    return lambda source: source.run(sql)


def passes(source: AlteredSource) -> None:
    source.made("ALTER TABLE t ADD INDEX k (v)", source.captures[-1], source.contents[-1])


def narrows(source: AlteredSource) -> None:
    capture = source.captures[-1]
    columns = tuple(Column(c.name, SourceType.parse("smallint")) if c.name == "v" else c for c in capture.columns)
    narrow = capture.of(replace(capture.source, columns=columns))
    source.made("ALTER TABLE t MODIFY v SMALLINT", narrow, source.contents[-1])


def swaps(source: AlteredSource) -> None:
    """The definition stays equal: rows do not show it."""
    names = [c.name for c in source.captures[-1].columns if c.name != "id"]
    other = {key: dict.fromkeys(names, 7 * key) for key in (2, 3, 5, 8, 15)}
    source.made("RENAME TABLE t TO t_old, t_new TO t", source.captures[-1], other)


#: what is followed, and what is not
FOLLOWED: dict[str, Action] = {
    "nothing": passes,
    "added": runs("ALTER TABLE t ADD x INT"),
    "dropped": runs("ALTER TABLE t DROP w"),
    "renamed": runs("ALTER TABLE t RENAME COLUMN v TO x"),
    "exchanged": runs("ALTER TABLE t CHANGE w v INT AFTER id, CHANGE v w INT"),
    "filled": runs("ALTER TABLE t ADD x INT NOT NULL DEFAULT 7 FIRST"),
    "filled alike": runs("ALTER TABLE t DROP v, ADD v INT DEFAULT 50 AFTER id"),
    "emptied": runs("TRUNCATE t"),
}
CLASSES = FOLLOWED | {"narrowed": narrows, "swapped": swaps}


def chosen(trace: list[tuple[Moment, bool]]) -> list[Moment]:
    """In the stream: a failpoint's first and last passing, and all while the statement is
    applied."""
    last = {name: number for (name, number), _ in trace}
    often = {name for name, number in last.items() if number > 6}
    return [(n, i) for (n, i), stepping in trace if stepping or n not in often or i in (1, 2, last[n])]


class Lives:
    """Lives in folders of their own, which are removed at once."""

    def __init__(self, action: Action, place: Moment, *, memory: bool, again: bool) -> None:
        self._made: Callable[[Path, tuple[Moment, ...]], SteppedLife] = lambda folder, deaths: SteppedLife(
            folder, {place: action}, deaths, memory, again
        )

    def live(self, *deaths: Moment) -> SteppedLife:
        with tempfile.TemporaryDirectory() as folder:
            life = self._made(Path(folder), deaths)
            life.run()
        return life


def killed_everywhere(lives: Lives, first: int, step: int) -> int:
    """Each `step`-th failpoint from `first` on; how many deaths there were."""
    moments = chosen(lives.live().trace)
    found = moments[first % step :: step]
    for moment in found:
        assert lives.live(moment).died == [moment]
    return len(found)


#: of the whole matrix, what runs always: in memory, and on a Delta table
USUAL: dict[str, Moment] = {"exchanged": ("split-read", 1), "swapped": ("HIGH", 2), "narrowed": STREAM}
USUAL_OF_DELTA: dict[str, Moment] = {
    "filled alike": ("split-read", 3),
    "emptied": ("before HIGH", 2),
    "filled": ("before-publish", 1),
}


def matrix(usual: dict[str, Moment]) -> list[ParameterSet]:
    return [
        pytest.param(
            *(name, place, number),
            marks=() if usual.get(name) == place else pytest.mark.long,
            id=f"{name}-{place[0]}-{place[1]}",
        )
        for number, (name, place) in enumerate(product(CLASSES, PLACES))
    ]


@pytest.mark.parametrize("name", CLASSES)
def test_in_the_stream_what_is_followed_needs_no_resnapshot(name: str) -> None:
    life = Lives(CLASSES[name], STREAM, memory=False, again=False).live()
    assert sum(isinstance(done, Statement) for done in life.source.done) == 1
    assert life.resnapshots == (name not in FOLLOWED)


@pytest.mark.parametrize(("name", "place", "number"), matrix(USUAL))
def test_killed_at_each_failpoint_of_a_resnapshot(name: str, place: Moment, number: int) -> None:
    lives = Lives(CLASSES[name], place, memory=True, again=True)
    assert killed_everywhere(lives, 0, 1) > 20


@pytest.mark.parametrize(("name", "place", "number"), matrix(USUAL_OF_DELTA))
def test_killed_at_failpoints_of_a_delta_table(name: str, place: Moment, number: int) -> None:
    """Which of them, differs from one to the next; those of a commit, too."""
    again = number % 2 == 0 or place[0] in ("before-publish", "published")
    lives = Lives(CLASSES[name], place, memory=False, again=again)
    assert killed_everywhere(lives, number, 9) > 2


@settings(max_examples=25)
@given(data=st.data())
def test_several_statements_and_several_deaths(data: st.DataObject) -> None:
    """In any order; a statement that the server would refuse is none."""
    actions = data.draw(st.dictionaries(st.sampled_from(PLACES), st.sampled_from(sorted(CLASSES)), max_size=4))
    moments = st.tuples(
        st.sampled_from([p[0] for p in PLACES] + ["table-applied", "wave-staged", "wave-read"]), st.integers(1, 9)
    )
    deaths = data.draw(st.lists(moments, max_size=4, unique=True))
    again = data.draw(st.booleans())
    with tempfile.TemporaryDirectory() as folder:
        SteppedLife(Path(folder), {place: CLASSES[n] for place, n in actions.items()}, deaths, True, again).run()
