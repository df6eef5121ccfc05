"""What runs as a process of its own.

These processes reach object stores by the clients of delta-rs and `obstore`. Arrow has another one
for S3, which it loads with its file systems (3 MiB) where it finds it. Here it does not;
`pyarrow._s3fs` can still be imported by name.
"""

from __future__ import annotations

from cdcsync_core.hidden import hidden

with hidden("pyarrow._s3fs"):  # before any thread
    import pyarrow.fs  # noqa: F401
