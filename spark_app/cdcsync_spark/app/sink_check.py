"""`python -m cdcsync_spark.app.sink_check`: asks the servers of a `SinkQuestion` on standard
input, and writes the `Checks` to standard output. Writes nothing to the servers."""

from __future__ import annotations

import sys
from pathlib import Path

from cdcsync_core.resource.spec import CdcSync
from cdcsync_core.runs.sink_check import SinkQuestion
from cdcsync_spark.sinks import check_servers


def main() -> None:
    question = SinkQuestion.from_json(sys.stdin.read())
    resource = CdcSync.model_validate(question.resource)
    checks = check_servers(resource.spec.sink, Path(question.secrets_dir), resource.full_name, question.tables)
    sys.stdout.write(checks.to_json())


if __name__ == "__main__":
    main()
