"""The calls that make and mark a run's objects, and what a refusal of the API server means.

Why it is right: an object's name holds the run's id, so a creation whose answer was lost can be
repeated and meets the object of the first time.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from cdcsync_core.errors import CdcError, Reason, fail
from cdcsync_kube.client import Api, ApiError, Object

_T = TypeVar("_T")
#: seconds before something is asked for again that the API server would not do just then
_PAUSES = (0.1, 0.3, 1.0)


@dataclass(frozen=True)
class RunCalls:
    """`base` is the namespace's folder of core objects."""

    api: Api
    base: str

    def create(self, where: str, body: Object) -> Object:
        """The object, new or as it was created before; `where` is a path, or a kind below
        `base`."""
        path = where if where.startswith("/") else f"{self.base}/{where}"
        try:
            return _with_retry(lambda: self.api.create(path, body))
        except ApiError as error:
            if not (error.conflict and error.reason == "AlreadyExists"):
                raise
        if where != "configmaps":
            return body
        return _with_retry(lambda: self.api.get(f"{path}/{body['metadata']['name']}"))

    def annotate(self, where: str, name: str, value: str) -> None:
        """Marks an object of a run; nothing where that is gone."""
        try:
            body = {"metadata": {"annotations": {name: value}}}
            _with_retry(lambda: self.api.merge(f"{self.base}/{where}", body))
        except ApiError as error:
            if not error.gone:
                raise


def _with_retry(call: Callable[[], _T]) -> _T:
    """What may be asked for twice is, where the API server cannot do it just then or its answer is
    lost. Raises ApiError."""
    for pause in _PAUSES:
        try:
            return call()
        except ApiError as error:
            if not error.transient or error.conflict:
                raise
        time.sleep(pause)
    return call()


class translating_api_errors:
    """Turns a refusal of the API server into the product's error."""

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, _: object) -> None:
        if isinstance(error, ApiError):
            raise explained(error) from None


def explained(error: ApiError) -> CdcError:
    if error.status == 403 and "exceeded quota" in error.message:
        return fail(Reason.QUOTA_EXCEEDED, error.message, remedy="raise the namespace's quota, or ask for less")
    if error.status == 403:
        return fail(Reason.INTERNAL_ERROR, f"the API server refused a driver: {error.message}")
    if error.status in (400, 422):
        return fail(Reason.SPEC_INVALID, f"the API server refused a driver: {error.message}", remedy="see podTemplate")
    return fail(Reason.INTERNAL_ERROR, f"a driver could not be made: {error}")
