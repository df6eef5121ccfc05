"""Where a lake is, as the manifest gives it: a folder, or a bucket and a prefix, and how a client
reaches it.

Why it exists: the operator checks a sink before a driver writes to it, and both must mean the same
place. A lake whose path holds a percent sign is refused, because delta-rs decodes those in a
table's location, twice for some of its requests.

Credentials are read from their files whenever they are needed, so a rotated key is used from the
next request on.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Self
from urllib.parse import urlsplit

from cdcsync_core.errors import CdcError, Reason, fail
from cdcsync_core.resource.sinks.kind import StoreUse

#: the name of a variable of a store's client
CREDENTIAL = re.compile(r"[A-Z][A-Z0-9_]*")


@dataclass(frozen=True)
class Location:
    """A lake's root. `scheme` is `file` or `s3`; `root` an absolute folder or `bucket/prefix`;
    `secret_dir` a folder with a file per credential variable, empty where the environment's own
    credentials serve."""

    scheme: str
    root: str
    endpoint: str = ""
    region: str = ""
    secret_dir: str = ""

    @classmethod
    def parse(cls, path: str, endpoint: str = "", region: str = "", secret_dir: str = "") -> Self:
        """Raises `SpecInvalid` for a store that is not supported."""
        if "%" in path:
            raise _bad_path(path, "a path without percent signs")
        if "://" not in path:
            return cls("file", _absolute(path))
        parts = urlsplit(path, allow_fragments=False)
        if parts.query or parts.username or parts.password or any(s in (".", "..") for s in parts.path.split("/")):
            raise _bad_path(path, "a plain URL: no query, no credentials, no . or .. segments")
        if parts.scheme == "file" and parts.netloc in ("", "localhost"):
            return cls("file", _absolute(parts.path))
        if parts.scheme in ("s3", "s3a") and parts.netloc:
            return cls("s3", f"{parts.netloc}/{parts.path.strip('/')}".rstrip("/"), endpoint, region, secret_dir)
        raise _bad_path(path, "a folder, file:///folder or s3://bucket/prefix")

    @classmethod
    def of(cls, store: StoreUse, secrets: Path) -> Self:
        """A manifest's; `<secrets>/<secret>/<key>` hold its credentials. Raises as `parse`."""
        secret_dir = str(secrets / store.secret) if store.secret else ""
        return cls.parse(store.path, store.endpoint, store.region, secret_dir)

    @property
    def local(self) -> bool:
        return self.scheme == "file"

    @property
    def bucket(self) -> str:
        return self.root.partition("/")[0]

    @property
    def prefix(self) -> str:
        """In the bucket; empty for its root."""
        return self.root.partition("/")[2]

    @property
    def uri(self) -> str:
        """What delta-rs opens."""
        return self.root if self.local else f"s3://{self.root}"

    def credentials(self) -> dict[str, str]:
        """Variable -> value, read now; empty where the environment's own serve."""
        if not self.secret_dir:
            return {}
        folder = Path(self.secret_dir)
        if not folder.is_dir():
            raise fail(
                Reason.SPEC_INVALID,
                f"no Secret {folder.name!r} for the sink",
                remedy="create the Secret named in spec.sink",
            )
        return {f.name: f.read_text().strip() for f in folder.iterdir() if CREDENTIAL.fullmatch(f.name)}

    def store_config(self) -> dict[str, str]:
        """The options of an object store's client."""
        if self.local:
            return {}
        config = self.credentials()
        if self.region:
            config["AWS_REGION"] = self.region
        if self.endpoint:
            config["AWS_ENDPOINT_URL"] = self.endpoint
            config["AWS_ALLOW_HTTP"] = str(self.endpoint.startswith("http://")).lower()
        return config

    def without_secrets(self, text: str) -> str:
        try:
            values = self.credentials().values()
        except (CdcError, OSError):
            return "the credentials cannot be read"
        for value in values:
            text = text.replace(value, "***") if len(value) > 3 else text
        return text


def _absolute(folder: str) -> str:
    """Follows no links: they may change, and a lake is named by its user's path."""
    return os.path.abspath(Path(folder).expanduser())  # noqa: PTH100


def _bad_path(path: str, needed: str) -> CdcError:
    return fail(Reason.SPEC_INVALID, f"the path {path!r} in spec.sink", needed=needed, remedy="give such a path")
