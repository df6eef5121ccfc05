"""A server of S3 (moto) whose conditional puts are atomic, as a store's are:
`python s3server.py -H HOST -p PORT`.

Moto checks whether a name is taken and then takes it. Of two requests in two threads both could be
answered that it was free, which no store does that commits can rely on.
"""

from __future__ import annotations

import sys
import threading
from typing import Any

S3_SERVER = (sys.executable, __file__)


def _main() -> None:
    from moto.s3.responses import S3Response
    from moto.server import main

    one, put = threading.Lock(), S3Response._key_response_put

    def put_alone(response: S3Response, *arguments: Any, **more: Any) -> Any:
        with one:
            return put(response, *arguments, **more)

    S3Response._key_response_put = put_alone  # type: ignore[method-assign,assignment]
    main(sys.argv[1:])


if __name__ == "__main__":
    _main()
