"""What the pages of a Parquet file take in memory once they are unpacked, by their own headers.
Pure.

Why it exists: a footer may announce less than the pages hold, and a page of a few bytes may unpack
to gigabytes, so a file of someone else's would end the process for want of memory. Why it is right:
the reader allocates what a page's header announces, and refuses a page that has more; headers are
parsed as the reader parses them, from the same bytes, and a chunk that cannot be followed is
refused. Texts of a dictionary count as often as they are spelled out: at first by the longest of
them, and where that is too much, exactly. Formats: Parquet's `parquet.thrift`, `PageHeader`;
Thrift's compact protocol.
"""

from __future__ import annotations

import struct
from collections import Counter, deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

import pyarrow as pa

from cdcsync_spark.sinks.lake.storage.parquet_deltas import LENGTHS, PREFIXES, spelled_out_beyond

#: bytes of a value of a physical type once it is read; of a text, without its characters
_WIDTHS = {"BOOLEAN": 1, "INT32": 4, "INT64": 8, "INT96": 8, "FLOAT": 4, "DOUBLE": 8, "BYTE_ARRAY": 4}
#: bytes of a header, as the reader bounds it, and how deep its parts may nest
LONGEST_HEADER, _DEEPEST = 16 * 2**20, 8
#: types of Thrift's compact protocol
_TRUE, _FALSE, _BYTE, _I16, _I32, _I64, _DOUBLE, _BINARY, _LIST, _SET, _MAP, _STRUCT = range(1, 13)
#: fields of a header; the paths of the number of values, and of the encoding, by the kind of a page
#: of data
_KIND, _UNPACKED, _PACKED = (1,), (2,), (3,)
_DICTIONARY, _VALUES, _ENCODING = 2, {0: (5, 1), 3: (8, 1)}, {0: (5, 2), 3: (8, 4)}
#: the kind of pages that have their levels within, fields of these levels' encodings, and the one
#: of today; fields of another's: the sizes of its levels, and whether its values are packed
_WITHIN, _LEVELS, _RLE, _PLAIN, _IS_PACKED = 0, ((5, 3), (5, 4)), 3, ((8, 5), (8, 6)), (8, 7)
#: encodings of data, all but those of numbers in a dictionary
_SPELLED_OUT = (0, *range(3, 8), 9)
#: of the footer -> of Arrow; a dictionary by another has one text, for all that is known
_CODECS = {"ZSTD": "zstd", "SNAPPY": "snappy", "GZIP": "gzip", "BROTLI": "brotli", "LZ4": "lz4_raw"}
#: of a text in a dictionary
_SIZE = struct.Struct("<I")
#: rows of a file of which a reader that streams spells out the texts at a time
STREAMED_ROWS = 64 * 1024


@dataclass(frozen=True, slots=True)
class Chunk:
    """One column of a row group, leaf `column` of the schema: its bytes in the file, its values and
    what they are packed by, by the footer. `texts` where its dictionary has texts; `levels` are the
    sequences that a page begins with, of nulls and of lists."""

    group: int
    start: int
    end: int
    values: int
    width: int
    column: int = 0
    codec: str = ""
    texts: bool = False
    levels: int = 0


@dataclass(frozen=True)
class Page:
    """Sizes are of its content, `header` of what is before it; `values` of data, not of a
    dictionary, `numbers` of those that may be numbers of one. `plain` bytes are levels that are
    never packed, in a page that has none within; `is_packed` is False where it does not say so."""

    kind: int
    header: int
    unpacked: int
    packed: int
    values: int
    numbers: int
    encoding: int = 0
    plain: int | None = None
    is_packed: bool = True


@dataclass(frozen=True)
class Most:
    """Bytes: of one page, and of all pages of a row group that is read as a whole; `streamed` where
    a reader holds a page of each column, and `STREAMED_ROWS` of its values, instead."""

    page: int
    group: int
    streamed: bool = False


class TooHeavy(Exception):
    """Pages take more than they may."""


class Incomplete(Exception):
    """The bytes end within a header."""


def chunk_width(physical_type: str, length: int) -> int:
    return _WIDTHS.get(physical_type, length)


def page_at(data: memoryview) -> Page:
    """The page whose header begins there. Raises Incomplete, and ValueError for what is no
    header."""
    header = _Header(data)
    try:
        header.struct(0, ())
    except IndexError:
        if len(data) >= LONGEST_HEADER:
            raise ValueError("a page header without an end") from None
        raise Incomplete from None
    numbers = header.numbers
    kind, unpacked, packed = (numbers.get(path, -1) for path in (_KIND, _UNPACKED, _PACKED))
    values = numbers.get(_VALUES[kind], -1) if kind in _VALUES else 0
    if min(kind, unpacked, packed, values) < 0:
        raise ValueError("a page without its kind or a size")
    encoding = numbers.get(_ENCODING.get(kind, ()), -1)
    page = Page(kind, header.at, unpacked, packed, values, 0 if encoding in _SPELLED_OUT else values, encoding)
    return _with_levels(page, numbers) if encoding in (LENGTHS, PREFIXES) else page


def _with_levels(page: Page, numbers: dict[tuple[int, ...], int]) -> Page:
    if page.kind == _WITHIN:
        if any(numbers.get(path, _RLE) != _RLE for path in _LEVELS):
            raise ValueError("a page of texts with levels in an encoding of before 2014")
        return page
    sizes = [numbers.get(path, 0) for path in _PLAIN]
    if min(sizes) < 0 or sum(sizes) > min(page.unpacked, page.packed):
        raise ValueError("a page of texts with levels of a size that it has not")
    return replace(page, plain=sum(sizes), is_packed=bool(numbers.get(_IS_PACKED, 0)))


@dataclass
class _Header:
    """Numbers of 32 bits, and truth values, by the path of their fields; all else is passed
    over."""

    data: memoryview
    at: int = 0
    numbers: dict[tuple[int, ...], int] = field(default_factory=dict)

    def struct(self, depth: int, path: tuple[int, ...]) -> None:
        if depth > _DEEPEST:
            raise ValueError("a page header that nests too deeply")
        number = 0
        while head := self._byte():
            kind = head & 0x0F
            number = number + (head >> 4) if head >> 4 else _signed(self._varint() & 0xFFFF)
            self._value(kind, depth, (*path, number))

    def _value(self, kind: int, depth: int, path: tuple[int, ...]) -> None:
        if kind == _I32:
            self.numbers[path] = _signed(self._varint() & 0xFFFF_FFFF)
        elif kind in (_I16, _I64):
            self._varint()
        elif kind == _BYTE:
            self._skip(1)
        elif kind == _DOUBLE:
            self._skip(8)
        elif kind == _BINARY:
            self._skip(self._varint())
        elif kind == _STRUCT:
            self.struct(depth + 1, path)
        elif kind in (_TRUE, _FALSE):
            self.numbers[path] = int(kind == _TRUE)
        else:
            raise ValueError(f"a page header with a field of type {kind}")

    def _byte(self) -> int:
        self._skip(1)
        return self.data[self.at - 1]

    def _skip(self, size: int) -> None:
        self.at += size
        if self.at > len(self.data):
            if self.at > LONGEST_HEADER:
                raise ValueError("a page header without an end")
            raise IndexError

    def _varint(self) -> int:
        value = 0
        for shift in range(0, 70, 7):
            byte = self._byte()
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
        raise ValueError("a number of more than ten bytes in a page header")


def _signed(zigzag: int) -> int:
    return (zigzag >> 1) ^ -(zigzag & 1)


def longest_text(page: Page, content: memoryview, codec: str) -> int:
    """The length of the longest text of a dictionary; at most all of its bytes, which counts where
    its content is not known."""
    if len(content) < page.packed:
        return page.unpacked
    try:
        texts = _unpacked(bytes(content[: page.packed]), page.unpacked, codec)
    except ValueError:
        return page.unpacked  # the reader refuses it, or unpacks it by another codec
    at = longest = 0
    end, unpack = len(texts) - _SIZE.size, _SIZE.unpack_from
    while at <= end:
        (size,) = unpack(texts, at)
        if size > longest:
            longest = size
        at += 4 + size
    return min(longest, page.unpacked)


def _unpacked(content: bytes, size: int, codec: str) -> bytes:
    """Raises ValueError."""
    if codec == "UNCOMPRESSED" or not size:
        return content
    if codec not in _CODECS:
        raise ValueError(f"a page that is packed by {codec}, and has texts that were not weighed")
    try:
        return bytes(pa.decompress(content, size, _CODECS[codec], asbytes=True))
    except OSError:
        raise ValueError(f"a page that is not packed by {codec}, as its footer has it") from None


def spelled_out_by_deltas(chunk: Chunk, page: Page, content: bytes) -> int:
    """The bytes of a page's texts beyond its own. Where a page does not say that it is packed,
    readers differ, so it is weighed by both. Raises ValueError."""
    plain, levels = page.plain or 0, chunk.levels if page.plain is None else 0
    sizes = []
    for codec in {chunk.codec} if page.is_packed else {"UNCOMPRESSED", chunk.codec}:
        try:
            texts = _unpacked(content[plain:], page.unpacked - plain, codec)
            sizes.append(spelled_out_beyond(texts, page.encoding, levels, page.values))
        except ValueError as broken:
            refused = broken
    if not sizes:
        raise refused
    return max(sizes)


@dataclass
class _Collected:
    """A page of which not all bytes were there yet, `end` behind the last one that was."""

    page: Page
    end: int
    content: bytes


class _PageWalk:
    """The headers of one chunk, whose bytes come in order; `longest` is of its dictionary, `texts`
    what its values are spelled out to at most, `deltas` what those of texts by prefixes are. No
    page unpacks to more than `most` bytes."""

    def __init__(self, chunk: Chunk, most: int) -> None:
        self.chunk, self._most = chunk, most
        self.longest = self.texts = self.deltas = 0
        self._at, self._values = chunk.start, 0
        self._head = b""
        self._collected: _Collected | None = None

    def pages(self, start: int, data: memoryview) -> Iterator[Page]:
        """The pages whose header ends within these bytes, which begin at `start` of the file.
        Raises TooHeavy, and ValueError."""
        if self._collected:
            self._collect(self._collected, start, data)
        while self._values < self.chunk.values and self._at < min(start + len(data), self.chunk.end):
            if self._at + len(self._head) < start:
                raise ValueError(f"bytes {self._at} to {start} of a chunk were passed over")
            fresh = data[self._at + len(self._head) - start : self.chunk.end - start]
            try:
                page = page_at(memoryview(self._head + bytes(fresh[:LONGEST_HEADER])) if self._head else fresh)
            except Incomplete:
                self._head += bytes(fresh)
                return
            self._take(page, fresh[page.header - len(self._head) :])
            yield page

    def _take(self, page: Page, content: memoryview) -> None:
        """A dictionary is unpacked here, once it is known to be small enough."""
        if page.unpacked > self._most:
            raise TooHeavy(f"a page unpacks to {page.unpacked} bytes")
        if self.chunk.texts and page.kind == _DICTIONARY:
            self.longest = max(self.longest, longest_text(page, content, self.chunk.codec))
        self.texts += page.numbers * self.longest
        if page.encoding in (LENGTHS, PREFIXES):
            if page.packed > self._most:
                raise TooHeavy(f"a page has {page.packed} bytes")
            start = self._at + page.header
            self._collect(_Collected(page, start, b""), start, content)
        self._head = b""
        self._at += page.header + page.packed
        self._values += page.values

    def _collect(self, collected: _Collected, start: int, data: memoryview) -> None:
        """Weighs the page once its last byte is there, which the reader has not got yet."""
        if start > collected.end:
            raise ValueError(f"bytes {collected.end} to {start} of a chunk were passed over")
        left = collected.page.packed - len(collected.content)
        fresh = bytes(data[collected.end - start :][:left])
        collected.end += len(fresh)
        collected.content += fresh
        self._collected = collected if len(fresh) < left else None
        if self._collected is None:
            self.deltas += spelled_out_by_deltas(self.chunk, collected.page, collected.content)


#: the bytes of the texts of a chunk, whose content is given, once they are spelled out: of all, or
#: of the `STREAMED_ROWS` that have most
Spelled = Callable[[Chunk, bytes], int]


class _NewestPages:
    """The newest pages of a column that may have `STREAMED_ROWS` rows of one reading."""

    def __init__(self) -> None:
        self._pages: deque[tuple[int, int]] = deque()
        self._values = self.size = 0

    def add(self, values: int, size: int) -> None:
        """What has no values belongs to the page before it."""
        last = self._pages.pop() if self._pages and not values else (0, 0)
        self._pages.append((values + last[0], size + last[1]))
        self._values += values
        self.size += size
        while self._values - self._pages[0][0] >= STREAMED_ROWS:
            oldest, its_size = self._pages.popleft()
            self._values -= oldest
            self.size -= its_size


class PageWatch:
    """Adds up what the bytes that are read of a file unpack to."""

    def __init__(self, chunks: list[Chunk], most: Most, spelled: Spelled) -> None:
        self._walks = [_PageWalk(chunk, most.page) for chunk in chunks]
        self._most, self._spelled = most, spelled
        self._groups: Counter[int] = Counter()
        self._windows: dict[int, _NewestPages] = {}
        #: chunks of a row group whose texts are estimated, with their content
        self._estimated: dict[int, list[tuple[Chunk, bytes, int]]] = {}

    def take(self, start: int, data: memoryview) -> None:
        """Bytes of the file, before the reader has them. Raises TooHeavy and ValueError."""
        for walk in self._walks:
            chunk = walk.chunk
            if chunk.start < start + len(data) and start < chunk.end:
                for page in walk.pages(start, data):
                    self._weigh(chunk, page.values, self._held(chunk, page))
                if walk.deltas:
                    self._weigh(chunk, 0, walk.deltas)
                    walk.deltas = 0
                if walk.texts:
                    self._weigh_texts(walk, data[max(chunk.start - start, 0) : chunk.end - start])

    def _held(self, chunk: Chunk, page: Page) -> int:
        """The bytes of it that a reader holds, which has no more values at a time if it streams."""
        values = min(page.values, STREAMED_ROWS) if self._most.streamed else page.values
        return max(page.unpacked, values * chunk.width)

    def _weigh(self, chunk: Chunk, values: int, size: int) -> None:
        if not self._most.streamed:
            self._add(chunk.group, size)
            return
        window = self._windows.setdefault(chunk.column, _NewestPages())
        window.add(values, size)
        if sum(each.size for each in self._windows.values()) > self._most.group:
            raise TooHeavy(f"the pages of {STREAMED_ROWS} rows unpack to more than {self._most.group} bytes")

    def _add(self, group: int, size: int) -> None:
        self._groups[group] += size
        if self._groups[group] > self._most.group:
            raise TooHeavy(f"the pages of row group {group} unpack to more than {self._most.group} bytes")

    def _weigh_texts(self, walk: _PageWalk, content: memoryview) -> None:
        chunk, whole = walk.chunk, len(content) == walk.chunk.end - walk.chunk.start
        texts, walk.texts = walk.texts, 0
        if self._most.streamed:
            most = STREAMED_ROWS * walk.longest
            if most > self._most.page and (not whole or self._spelled(chunk, bytes(content)) > self._most.page):
                raise TooHeavy(f"the texts of {STREAMED_ROWS} rows take more than {self._most.page} bytes")
            return
        if not whole:
            self._add(chunk.group, texts)
            return
        estimated = self._estimated.setdefault(chunk.group, [])
        estimated.append((chunk, bytes(content), texts))
        if self._groups[chunk.group] + sum(size for _, _, size in estimated) > self._most.group:
            for each, its_content, _ in estimated:
                self._add(chunk.group, self._spelled(each, its_content))
            estimated.clear()
