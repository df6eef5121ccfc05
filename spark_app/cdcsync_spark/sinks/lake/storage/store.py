"""What a lake asks of the store that holds it: whole files by name, durable, and one way to create
a file that fails where the name is taken.

That last one, `put_new`, is all that a commit's compare-and-set rests on (rule R8). A store is a
folder on a disk (`local_store`) or a prefix in a bucket (`object_store`); names are relative to it,
with forward slashes. Where a lake is and by which credentials it is reached is its `Location`'s.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol, Self

import pyarrow.fs as pafs

from cdcsync_core.errors import RUN_AGAIN, CdcError, Reason, fail
from cdcsync_core.quoting import quoted
from cdcsync_core.remedies import RESNAPSHOT
from cdcsync_lake.location import Location
from cdcsync_lake.panics import ClientPanic, panics_as_errors
from cdcsync_spark.memory import memory_limit
from cdcsync_spark.sinks.lake.storage.errors import client_errors, sink_error

#: bytes of a file that is read as a whole, such as an entry or a checkpoint of a log
LARGEST_READ = 2**30
#: of this process's memory, for one
_SHARE = 4


class Store(Protocol):
    """A lake, or a folder of it. Picklable."""

    @property
    def location(self) -> Location: ...

    @property
    def uri(self) -> str:
        """Where it is, for messages and for libraries that open it by themselves."""
        ...

    @property
    def local_folder(self) -> Path | None:
        """The folder on a disk of this machine; None for a store that is not one. What another
        program writes there becomes durable by `make_durable` alone; a store of another kind makes
        it durable by itself."""
        ...

    def below(self, relative: str) -> Self:
        """The folder `relative` of this store, as a store."""
        ...

    def storage_options(self) -> dict[str, str]:
        """How such a library reaches it: the options of the crate object_store, which many use."""
        ...

    def files(self) -> pafs.FileSystem:
        """The store as a file system whose paths are relative to it, for Arrow to read from."""
        ...

    def read(self, relative: str) -> bytes | None:
        """A whole small file, by one request; None where it is not there. Raises SinkConflict for
        one beyond `LARGEST_READ`."""
        ...

    def has(self, relative: str) -> bool:
        """Whether a file is there."""
        ...

    def listed(self, relative: str) -> Mapping[str, float | None]:
        """The names in a folder with the time at which each file was written, in unix seconds; None
        for a folder. Empty where there is no folder."""
        ...

    def linked(self, relative: str) -> bool:
        """Whether a part of this path is a symbolic link: it may lead out of this store."""
        ...

    def delete(self, relative: str) -> None:
        """A file; one that is not there is no error."""
        ...

    def delete_folder(self, relative: str) -> None:
        """Deletes the folder with all that is in it; one that is not there is no error."""
        ...

    def make_folder(self, relative: str) -> None:
        """Durable, with the folders above it, where the store has folders."""
        ...

    def make_durable(self, relatives: Iterable[str]) -> None:
        """Files that another program wrote in this store, and the names of the folders on their
        way."""
        ...

    def new_file(self, relative: str) -> AbstractContextManager[Path]:
        """A local path to write; when the block ends well the file is in this store and durable,
        else nothing is. `relative` must be a name that was never used."""
        ...

    def put_new(self, relative: str, content: bytes) -> bool:
        """Writes a whole file durably if none of that name is there; False: there is one.

        The name appears with all of the content or not at all. Its folder must be there: one that
        was taken away is not made again for it.
        """
        ...

    def translating_errors(self, table: str, doing: str) -> AbstractContextManager[None]:
        """Turns what clients and the operating system raise into the product's errors, without
        credentials in them."""
        ...

    def error(self, error: Exception, table: str, doing: str) -> CdcError:
        """The product's error for what a client raised."""
        ...


@dataclass(frozen=True)
class LocatedStore:
    """What all stores share: their location, and errors without its credentials."""

    location: Location

    @property
    def uri(self) -> str:
        return self.location.uri

    def below(self, relative: str) -> Self:
        return replace(self, location=replace(self.location, root=f"{self.location.root}/{relative}"))

    @contextmanager
    def translating_errors(self, table: str, doing: str) -> Iterator[None]:
        try:
            with panics_as_errors():
                yield
        except CdcError:
            raise
        except ClientPanic:
            raise self.panic_error(table, doing) from None
        except client_errors() as error:
            raise self.error(error, table, doing) from None

    def error(self, error: Exception, table: str, doing: str) -> CdcError:
        return sink_error(error, self.without_secrets(str(error)), f"{doing} in {self.uri}", table)

    def without_secrets(self, text: str) -> str:
        return self.location.without_secrets(text)

    def panic_error(self, table: str, doing: str) -> CdcError:
        """The product's error for a panic of a client: the table's where there is one."""
        return fail(
            Reason.SINK_CONFLICT if table else Reason.INTERNAL_ERROR,
            f"the client panicked while {doing} in {self.uri}",
            needed="files that the client reads",
            remedy=f"restore the table's files, or {RESNAPSHOT}, {RUN_AGAIN}; report this with the driver log",
            table=table,
        )


def refuse_large(relative: str, size: int) -> None:
    """Before a file that would take all memory is read."""
    most = min(LARGEST_READ, memory_limit() // _SHARE)
    if size > most:
        raise fail(
            Reason.SINK_CONFLICT,
            f"the file {quoted(relative)} has {size} bytes",
            needed=f"at most {most}, a part of the driver's memory",
            remedy="raise spec.driver.memory, or spec.stream.driver.memory; or restore the file; or move the table's "
            f"folder away, {RUN_AGAIN}",
        )
