"""`python -m cdcsync_spark.app.topic_check`: asks the brokers of a `TopicQuestion` on standard
input, and writes the `TopicChecks` to standard output. Writes nothing to the brokers."""

from __future__ import annotations

import sys
from pathlib import Path

from cdcsync_core.spec import CdcSync
from cdcsync_core.topic_check import TopicQuestion
from cdcsync_spark.sinks import check_topics


def main() -> None:
    question = TopicQuestion.from_json(sys.stdin.read())
    resource = CdcSync.model_validate(question.resource)
    found = check_topics(resource.spec.sink, Path(question.secrets_dir), resource.full_name, question.tables)
    sys.stdout.write(found.to_json())


if __name__ == "__main__":
    main()
