"""Whose an object is, and its deletion.

Why it exists: a right to create objects is one to write any label and many names, so neither makes
an object a sync's. What counts has the owner (by uid) and the name that this program gives it.

Why it is right: each deletion names the uid of the object that was judged, so one that took its
name meanwhile stays: the API server answers with a conflict, and the next pass judges again. A pass
deletes some hundreds at most, the last in their order last, and the next pass goes on: a tenant can
give a run thousands of maps, and a worker is for all tenants.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from cdcsync_kube.client import Api, ApiError, Object
from cdcsync_operator.cluster.objects.run_objects import PART_LABEL

#: objects of a list that are judged in a pass, and those that it deletes
_MOST_LISTED, _MOST_DELETED = 5_000, 500


def is_owned_by(uid: str, about: Object) -> bool:
    """`about` is the metadata of an object."""
    return any(owner.get("uid") == uid for owner in about.get("ownerReferences") or ())


def uid_only(about: Object) -> Object:
    """The options of a deletion that meets this object and no other one of its name."""
    return {"preconditions": {"uid": about["uid"]}}


@dataclass(frozen=True)
class Owned:
    """The objects whose owner has this uid."""

    api: Api
    owner: str

    def delete(self, path: str, part: str = "") -> None:
        """The object of this path, if it is there and has this owner, and is this part of its run
        where one is named: two calls."""
        try:
            about = self.api.metadata_of(path)
        except ApiError as error:
            if error.gone:
                return
            raise
        is_part = not part or (about.get("labels") or {}).get(PART_LABEL) == part
        if is_part and is_owned_by(self.owner, about):
            self.api.delete(path, uid_only(about))

    def delete_all(self, folder: str, named: re.Pattern[str], order: Callable[[str], Any] = str, **query: str) -> None:
        """Deletes the objects of a list whose names are like this, in the order of their names,
        the first of them in this pass: a call a page, and one an object."""
        listed = itertools.islice(self.api.metadata(folder, **query), _MOST_LISTED)
        owned = [about for about in listed if named.fullmatch(about["name"]) and is_owned_by(self.owner, about)]
        for about in sorted(owned, key=lambda about: order(about["name"]))[:_MOST_DELETED]:
            self.api.delete(f"{folder}/{about['name']}", uid_only(about))
