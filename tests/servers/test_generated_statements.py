"""R9 by the server's own judgement: statements from the grammar of column definitions and defaults
are predicted as the server carries them out, or are not predicted at all."""

from __future__ import annotations

from collections import Counter
from itertools import islice

import pytest

from cdcsync_core.tables.schema_change import Kind
from support import generated_columns
from support.fixtures import variants
from support.predictions import Bench, Verdict, summary
from support.servers import Server

pytestmark = pytest.mark.server

#: the variant is the point: each server reads and completes definitions in its own way
servers = variants("mariadb1011", "mysql97_gtid", also=("mariadb114",))
_FOLLOWED = frozenset({Kind.NOTHING, Kind.RESHAPE, Kind.FILL, Kind.EMPTY})
_AT_ONCE = 500


def judged(server: Server, seed: int, accepted: int) -> list[Verdict]:
    """The verdicts on so many statements that the server accepts, or some more; what is wrong is
    printed at once."""
    cases = generated_columns.statements(seed, server.flavor)
    found: list[Verdict] = []
    while len(found) < accepted:
        bench = Bench(server, "generated")
        try:
            bench.play(islice(cases, min(_AT_ONCE, 2 * (accepted - len(found)))))
            verdicts = bench.judge()
        finally:
            bench.close()
        found += verdicts
        print(f"{server}: {len(found)} of {accepted}", *map(_shown, _wrong(verdicts)), sep="\n", flush=True)
    return found


def _wrong(verdicts: list[Verdict]) -> list[Verdict]:
    return [v for v in verdicts if v.wrong]


def _shown(verdict: Verdict) -> str:
    return f"{verdict.case.before} {verdict.case.run[0]}\n    {verdict.kind}: {'; '.join(verdict.wrong)}"


def check(server: Server, verdicts: list[Verdict], share: float) -> None:
    followed = sum(v.kind in _FOLLOWED for v in verdicts)
    print(f"{server}: {len(verdicts)} accepted, {followed / len(verdicts):.1%} followed; {summary(verdicts)}")
    examples = {v.reason: v.case.run[0] for v in verdicts}
    for reason, count in Counter(v.reason for v in verdicts if v.reason).most_common(40):
        print(f"  {count} {reason}: {examples[reason]}")
    assert not _wrong(verdicts), "\n".join(map(_shown, _wrong(verdicts)))
    assert followed >= share * len(verdicts)


@servers
def test_a_sample_of_the_grammar(request: pytest.FixtureRequest, variant: str) -> None:
    server: Server = request.getfixturevalue(variant)
    check(server, judged(server, 1, 150), 0.5)


@pytest.mark.long
@pytest.mark.timeout(7200)
@servers
def test_five_thousand_statements_of_the_grammar(request: pytest.FixtureRequest, variant: str) -> None:
    server: Server = request.getfixturevalue(variant)
    check(server, judged(server, 2, 5000), 0.5)
