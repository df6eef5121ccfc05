"""`python -m cdcsync_spark.app.start_check`: searches the source's binlog for the start of a
`StartQuestion` on standard input, and writes the `StartAnswer` to standard output."""

from __future__ import annotations

import sys
from pathlib import Path

from cdcsync_core.errors import CdcError
from cdcsync_core.positions.position import GtidPosition
from cdcsync_core.resource.spec import CdcSync
from cdcsync_core.runs.start_check import StartAnswer, StartQuestion
from cdcsync_mysql.readiness.proof import open_session
from cdcsync_mysql.sessions.connection import source_from_spec
from cdcsync_spark.binlog.search.start_place import StartPlace


def main() -> None:
    sys.stdout.write(_answer(StartQuestion.from_json(sys.stdin.read())).to_json())


def _answer(question: StartQuestion) -> StartAnswer:
    spec = CdcSync.model_validate(question.resource).spec
    try:
        with open_session(source_from_spec(spec.source, Path(question.secrets_dir))) as session:
            source, facts = session.source, session.facts
        position = StartPlace(source, facts).find(spec.start)
    except CdcError as error:
        return StartAnswer(error=error)
    return StartAnswer(f"behind {position.gtids}" if isinstance(position, GtidPosition) else f"at {position.at}")


if __name__ == "__main__":
    main()
