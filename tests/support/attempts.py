"""Requests to the API server from inside a pod, with the token that is mounted there. Runs in the
pod, too: `python -` of this text."""

from __future__ import annotations

import json
import sys
from typing import Any

from cdcsync_kube.access import in_pod
from cdcsync_kube.client import ApiError


def attempt(attempts: list[dict[str, Any]]) -> list[list[Any]]:
    """The status of each POST and the server's words; 0 where it never came there."""
    api, ends = in_pod(), []
    for one in attempts:
        try:
            api.create(one["path"], one["body"])
            ends.append([201, ""])
        except ApiError as error:
            ends.append([error.status, error.message])
    return ends


if __name__ == "__main__":
    print(json.dumps(attempt(json.loads(sys.argv[1]))))
