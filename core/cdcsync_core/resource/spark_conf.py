"""Spark's settings that a manifest may make: none that run code, move pods or carry a credential.

Why it is right: a key that is not refused by name is still Spark's own (`spark.*`), and RE2 cannot
run away on a key of any length.
"""

from __future__ import annotations

from typing import Annotated

import re2
from pydantic import AfterValidator

from cdcsync_core.resource.spec_part import Text

_REFUSED = re2.compile(
    r"spark\.kubernetes\..*|.*\.extraJavaOptions|.*\.extraClassPath|spark\.jars.*|spark\.plugins"
    r"|(?i:.*(?:secret|password|token|access\.?key).*)"
)


def _check(conf: dict[str, str]) -> dict[str, str]:
    for key in conf:
        if not key.startswith("spark.") or _REFUSED.fullmatch(key):
            raise ValueError(
                f"other keys than {key} (spark.* without spark.kubernetes.*, *.extraJavaOptions, "
                "*.extraClassPath, spark.jars*, spark.plugins and credentials)"
            )
    return conf


SparkConf = Annotated[dict[Text, Text], AfterValidator(_check)]
