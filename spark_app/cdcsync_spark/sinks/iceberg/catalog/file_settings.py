"""The settings of a table's files, as the answers of a REST catalog have them. Pure.

Why it is right: the key of S3 is the one form of credentials that the store's client takes. A
catalog that gives others means that files are reached by them, so they are named in an error; left
out in silence, this process's own identity would serve in their place. A key of the user's own
encryption (`s3.sse.*`) is no credential, and is left out.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

#: what makes a key of S3
PAIR = ("s3.access-key-id", "s3.secret-access-key")
_KEY = frozenset((*PAIR, "s3.session-token", "s3.session-token-expires-at-ms"))
#: settings of files that are credentials, or have another server sign requests
_CREDENTIAL = re.compile(
    r"(?i)(adls|abfss?|wasbs?|azure|gcs|gs|oss|cos|obs|s3a?)\.(?!sse\.)(.*[.-])?"
    r"(sas|sas-token|token|oauth2|account-key|shared-key|access-key|access-key-id|secret-access-key|secret|secret-key"
    r"|connection-string|credentials?|session-token|remote-signing-enabled)([.-].*)?"
)


def file_settings(body: Mapping[str, Any], location: str) -> dict[str, str]:
    """The settings of the files at `location`: credentials for the longest prefix of it go before
    those for all."""
    fitting = [each for each in _given(body) if location.startswith(str(each.get("prefix") or ""))]
    best = max(fitting, key=lambda each: len(str(each.get("prefix") or "")), default={})
    return _texts(body.get("config")) | _texts(best.get("config"))


def other_credentials(body: Mapping[str, Any], location: str) -> list[str]:
    """The names of what the answer gives in place of a key of S3 for the files at `location`; none
    where it gives such a key, or nothing at all."""
    settings = file_settings(body, location)
    key = {name: value for name, value in settings.items() if name in _KEY}
    if key.keys() >= set(PAIR):
        return [name for name, value in key.items() if not (value.isascii() and value.isprintable())]
    names = {name for name, value in settings.items() if _CREDENTIAL.fullmatch(name) and value.lower() != "false"}
    elsewhere = {f"prefix {each.get('prefix')}" for each in _given(body)} if not names else set()
    return sorted(names | elsewhere)[:3]


def _given(body: Mapping[str, Any]) -> list[dict[str, Any]]:
    given = body.get("storage-credentials")
    return [each for each in given if isinstance(each, dict)] if isinstance(given, list) else []


def _texts(config: Any) -> dict[str, str]:
    return {str(k): str(v) for k, v in config.items()} if isinstance(config, dict) else {}
