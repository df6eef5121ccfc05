"""`python -m cdcsync_spark.app.explain`: answers a `MigrationQuestion` on standard input with the
effects of its statements on standard output. Connects to nothing."""

from __future__ import annotations

import sys
import time
from pathlib import Path

from cdcsync_core.resource.spec import CdcSync
from cdcsync_core.runs.migration import MigrationQuestion, effects_to_json
from cdcsync_spark.sinks import sink_from_spec
from cdcsync_spark.sinks.contract.changes import Emit
from cdcsync_spark.stream.explanation import Rules, explain
from cdcsync_spark.stream.policies import policy_of


def main() -> None:
    question = MigrationQuestion.from_json(sys.stdin.read())
    resource = CdcSync.model_validate(question.resource)
    spec = resource.spec
    can = sink_from_spec(spec.sink, Path(question.secrets_dir), resource.full_name).capabilities
    rules = Rules(spec.tables.selection, lambda table: policy_of(spec, table, can), Emit not in can.changes)
    effects = explain(question.tables, question.scripts, question.database, question.session, int(time.time()), rules)
    sys.stdout.write(effects_to_json(effects))


if __name__ == "__main__":
    main()
