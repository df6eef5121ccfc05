"""The source: connections, catalog, checks, watermarks, plans.

PyMySQL imports `cryptography` where it finds it, for the one login that hides the password by the
server's RSA key: 20 CPU milliseconds and up to 10 MiB in each process. It is made to look while
that cannot be found; the login imports it (`authentication`).
"""

from __future__ import annotations

from cdcsync_core.hidden import hidden

with hidden("cryptography"):  # before any thread: an import of it elsewhere would fail meanwhile
    import pymysql  # noqa: F401
