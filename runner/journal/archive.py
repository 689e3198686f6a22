"""Old entries of the journal as files: sealed segments, which are read like the store.

A segment is `<first>-<last>.jsonl.gz`: a line with its seal, then the entries as the store had them, one a line (`zcat` shows
them). It is written beside its place, made durable, renamed and read back before the stream is trimmed. A segment counts only
if the journal's register names it: half a file, a stray file or one of another cluster is never read.
"""

import gzip
import hashlib
import zlib
from bisect import bisect_left
from collections.abc import Sequence
from pathlib import Path

from runner.atomic_files import write_atomically
from runner.errors import StoreCorrupt, StoreUnavailable, UserError, WireError
from runner.facts import wire
from runner.facts.specs.cluster import ClusterSpec
from runner.facts.wire import Value
from runner.folder_modes import SHARED, close_folder

# Some 5 MB, 200 to 600 KB compressed; chosen.
SEGMENT_ENTRIES = 10_000
# A reader holds a segment in memory; chosen.
SEGMENT_BYTES = 32 * 1024 * 1024
# names the cluster of the folder; a folder without it is not mounted
OWNER_FILE = "cluster"
# for files of entries that a person gave up
ASIDE_FOLDER = "forgotten"
_GZIP_DEFAULT_LEVEL = 6


class Segment(Value):
    """The seal of one file. `sha256` and `bytes` are of its entries before compression, newlines included.

    `ended`: the controller's clock at its last entry.
    """

    first: int
    last: int
    count: int
    bytes: int
    sha256: str
    ended: float = 0.0

    @property
    def name(self) -> str:
        """Its file's name; names sort like the entries do."""
        return f"{self.first:012d}-{self.last:012d}.jsonl.gz"


class SegmentHead(Value, kind="segment"):
    """The first line of a file."""

    seal: Segment


class ArchiveIndex(Value, kind="archive_index"):
    """The segments that count, oldest first, without a gap from entry 1 on: what the journal keeps in a register."""

    segments: tuple[Segment, ...] = ()

    @property
    def last(self) -> int:
        """Return the number of the newest entry that is in a file; 0 without any."""
        return self.segments[-1].last if self.segments else 0

    def holding(self, number: int) -> Segment | None:
        """Return the segment of an entry, or None."""
        place = bisect_left(self.segments, number, key=lambda segment: segment.last)
        found = self.segments[place : place + 1]
        return found[0] if found and found[0].first <= number else None

    def since(self, moment: float) -> int:
        """Return an entry from which replay covers all after `moment`, with the segment before it for context."""
        later = [n for n, segment in enumerate(self.segments) if segment.ended >= moment]
        index = (later[0] if later else len(self.segments)) - 1
        return self.segments[index].first if index > 0 else 1


class Archive:
    """The folder of one cluster's old entries."""

    def __init__(self, folder: Path, cluster: str) -> None:
        self.folder = folder
        self._cluster = cluster

    def is_here(self) -> bool:
        """Whether this machine sees the folder: one that is missing or not mounted has no owner file."""
        try:
            return (self.folder / OWNER_FILE).is_file()
        except OSError:
            return False

    def prepare(self) -> None:
        """Claim the folder. Raises UserError if it is another cluster's, StoreUnavailable when it cannot be written."""
        owner = self.folder / OWNER_FILE
        try:
            close_folder(self.folder, SHARED)
            if not owner.exists():
                write_atomically(owner, self._cluster.encode() + b"\n")
            found = owner.read_text().strip()
        except OSError as error:
            raise StoreUnavailable(
                f"journal folder {self.folder}: {error}; make it writable"
            ) from error
        if found != self._cluster:
            raise UserError(
                f"journal folder {self.folder} belongs to cluster {found!r}, this is {self._cluster!r}; "
                "name another journal_folder"
            )

    def write(self, first: int, payloads: Sequence[bytes], *, ended: float) -> Segment:
        """Make a file of entries `first`, `first` + 1, ..., durable and read back; return its seal.

        Repeating it gives the same file. Raises StoreUnavailable when the disk fails.
        """
        self.prepare()
        body = b"".join(payload + b"\n" for payload in payloads)
        seal = Segment(
            first=first,
            last=first + len(payloads) - 1,
            count=len(payloads),
            bytes=len(body),
            sha256=hashlib.sha256(body).hexdigest(),
            ended=ended,
        )
        head = wire.encode(SegmentHead(seal=seal)) + b"\n"
        path = self.folder / seal.name
        try:
            write_atomically(path, gzip.compress(head + body, _GZIP_DEFAULT_LEVEL, mtime=0))
            self.read(seal)
        except OSError as error:
            raise StoreUnavailable(f"journal file {path}: {error}; check its disk") from error
        except StoreCorrupt as error:
            raise StoreUnavailable(f"it was not read back as it was written: {error}") from error
        return seal

    def put_aside(self, last: int) -> None:
        """Move files with entries past `last` away: those numbers are about to be reused."""
        if not self.is_here():
            return
        aside = self.folder / ASIDE_FOLDER
        for path in sorted(self.folder.glob("*.jsonl.gz")):
            if int(path.name.partition("-")[0]) > last:
                aside.mkdir(exist_ok=True)
                path.rename(aside / path.name)

    def read(self, seal: Segment) -> list[bytes]:
        """Return the entries of a segment; StoreCorrupt for a file that does not match its seal.

        StoreUnavailable when this machine cannot see the folder.
        """
        path = self.folder / seal.name
        if not self.is_here():
            raise StoreUnavailable(
                f"journal folder {self.folder} cannot be seen from here (no file {OWNER_FILE!r} in it) and holds entries up to "
                f"{seal.last}; mount it, or run this on its machine"
            )
        what = f"journal file {path}"
        try:
            plain = gzip.decompress(path.read_bytes())
        except FileNotFoundError:
            missing = f"entries {seal.first} to {seal.last}"
            raise StoreCorrupt(f"{what} is missing: {missing}; restore a backup") from None
        except (OSError, EOFError, zlib.error) as error:
            raise StoreCorrupt(f"{what} cannot be read: {error}; restore a backup") from error
        return _verified(plain, seal, path)


def _verified(plain: bytes, seal: Segment, path: Path) -> list[bytes]:
    head, _, body = plain.partition(b"\n")
    sha256 = hashlib.sha256(body).hexdigest()
    if sha256 != seal.sha256 or len(body) != seal.bytes:
        raise StoreCorrupt(
            f"journal file {path} does not match its seal: {len(body)} bytes with sha256 {sha256[:16]}, sealed were "
            f"{seal.bytes} with {seal.sha256[:16]}; restore a backup"
        )
    try:
        found = wire.decode(head)
    except WireError as error:
        raise StoreCorrupt(f"journal file {path}: its seal cannot be read: {error}") from error
    if not isinstance(found, SegmentHead) or found.seal != seal:
        raise StoreCorrupt(f"journal file {path}: its own seal differs from the register's")
    payloads = body.split(b"\n")[:-1]
    if len(payloads) != seal.count:
        raise StoreCorrupt(f"journal file {path} has {len(payloads)} entries, {seal.count} sealed")
    return payloads


def archive_of(cluster: ClusterSpec) -> Archive:
    """Return where a cluster's old entries are."""
    folder = cluster.journal_folder or f"{cluster.state}/journal"
    return Archive(Path(folder), cluster.name)
