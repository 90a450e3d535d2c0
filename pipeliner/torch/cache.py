"""Compiled kernels on disk: the user's alone, each checked against its key, bounded in bytes.

    1f..e0.json              the key in full, a note, the library's name and its SHA-256
    1f..e0-9a..27.so         the library
    lock-1f                  locked by the process that makes a kernel, so that others wait for it

A file is written under another name and moved to its own, so that no process sees half of one. The
name of a library is that of its content: two processes that write one entry at a time leave two
libraries, and a description of one of them.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from stat import S_IMODE, S_ISDIR, S_IWGRP, S_IWOTH
from typing import Any, Final

from ..diagnostics import Reason
from ..errors import ToolError

MODE: Final = 0o700
"""Of the folder: its owner may do everything, others nothing."""

FILE_MODE: Final = 0o600

OTHERS: Final = S_IWGRP | S_IWOTH

ABANDONED: Final = 3600.0
"""Seconds after which a file that no description names is nobody's."""

_DIGITS: Final = 32
_LIBRARY: Final = ".so"
_DESCRIPTION: Final = ".json"


@dataclass(frozen=True, slots=True)
class KeptLibrary:
    """A library that was found, and the note that was kept with it."""

    path: Path
    note: str


@dataclass(frozen=True, slots=True)
class KernelCache:
    """The folder ``path``, of at most ``most_bytes`` of libraries; ``opened`` makes one."""

    path: Path
    most_bytes: int

    @staticmethod
    def opened(path: Path, most_bytes: int) -> KernelCache:
        """The cache in ``path``, which is made where it is missing.

        ToolError: it is no folder of this user alone. One that others may only read is made his.
        """
        try:
            path.mkdir(MODE, parents=True, exist_ok=True)
            found = path.stat()
        except OSError as err:
            raise ToolError("cache.no_folder", path=str(path), why=str(err.strerror)) from err
        if not S_ISDIR(found.st_mode):
            raise ToolError("cache.no_directory", path=str(path))
        if found.st_uid != os.getuid():
            raise ToolError("cache.owner", path=str(path))
        if found.st_mode & OTHERS:
            raise ToolError("cache.writable", path=str(path), mode=f"{S_IMODE(found.st_mode):04o}")
        if S_IMODE(found.st_mode) != MODE:
            path.chmod(MODE)
        return KernelCache(path, most_bytes)

    def find(self, key: str) -> KeptLibrary | None:
        """The library of ``key``, checked; None: there is none. ToolError: it is not to be used."""
        place = self._place(key)
        try:
            text = place.read_bytes()
        except FileNotFoundError:
            return None
        entry = _described(text)
        if entry is None:
            raise self._refused(key, Reason("cache.damaged"))
        if entry["key"] != key:
            raise self._refused(key, Reason("cache.key"))
        library = self.path / str(entry["library"])
        if library.name != entry["library"] or not _is(library, str(entry["sha256"])):
            raise self._refused(key, Reason("cache.digest"))
        with contextlib.suppress(OSError):
            os.utime(place)  # used now: what was used longest ago goes first
        return KeptLibrary(library, str(entry["note"]))

    def store(self, key: str, write: Callable[[Path], object], note: str = "") -> Path:
        """The library that ``write`` leaves in the file that it is given, kept for ``key``."""
        with tempfile.TemporaryDirectory(prefix="making-", dir=self.path) as folder:
            made = Path(folder) / f"kernel{_LIBRARY}"
            write(made)
            digest = hashlib.sha256(made.read_bytes()).hexdigest()
            library = self.path / f"{_name(key)}-{digest[:_DIGITS]}{_LIBRARY}"
            entry = {"key": key, "note": note, "library": library.name, "sha256": digest}
            description = Path(folder) / "entry"
            description.write_text(json.dumps(entry))
            for file in (made, description):
                file.chmod(FILE_MODE)
            made.replace(library)
            description.replace(self._place(key))
        self._bound(self._place(key))
        return library

    @contextlib.contextmanager
    def making(self, key: str) -> Iterator[None]:
        """Only one process of this user is in here for ``key``; it ends with the process."""
        try:
            lock = os.open(self.path / f"lock-{_name(key)[:2]}", os.O_CREAT | os.O_RDWR, 0o600)
        except OSError:  # another makes the same kernel then, too
            yield
            return
        try:
            with contextlib.suppress(OSError):  # a file system without locks
                fcntl.flock(lock, fcntl.LOCK_EX)
            yield
        finally:
            os.close(lock)

    def entries(self) -> int:
        """How many kernels it has."""
        return len(list(self.path.glob(f"*{_DESCRIPTION}")))

    def _place(self, key: str) -> Path:
        return self.path / f"{_name(key)}{_DESCRIPTION}"

    def _refused(self, key: str, why: Reason) -> ToolError:
        return ToolError("cache.entry", kernel=_name(key), path=str(self.path), why=why)

    def _bound(self, newest: Path) -> None:
        """Remove what was used longest ago until the rest is small enough; ``newest`` stays."""
        used: dict[Path, float] = {}
        sizes: dict[Path, int] = {}
        named: set[str] = set()
        for place in self.path.glob(f"*{_DESCRIPTION}"):
            with contextlib.suppress(OSError):
                entry = _described(place.read_bytes())
                used[place] = place.stat().st_mtime
                if entry is not None:
                    library = self.path / str(entry["library"])
                    sizes[place] = library.stat().st_size
                    named.add(library.name)
        total = sum(sizes.values())
        for place in sorted(used, key=used.__getitem__):
            if total <= self.most_bytes:
                break
            if place != newest:
                total -= sizes.get(place, 0)
                self._remove(place)
        self._sweep(named)

    def _remove(self, place: Path) -> None:
        for file in (place, *self.path.glob(f"{place.stem}-*{_LIBRARY}")):
            with contextlib.suppress(OSError):
                file.unlink()

    def _sweep(self, named: set[str]) -> None:
        """Remove libraries that no description names, once they are old enough to be nobody's."""
        for library in self.path.glob(f"*{_LIBRARY}"):
            with contextlib.suppress(OSError):
                old = time.time() - library.stat().st_mtime > ABANDONED
                if library.name not in named and old:
                    library.unlink()


def _name(key: str) -> str:
    return hashlib.sha256(key.encode()).hexdigest()[:_DIGITS]


def _described(text: bytes) -> dict[str, Any] | None:
    try:
        entry = json.loads(text)
    except ValueError:
        return None
    fields = ("key", "note", "library", "sha256")
    whole = isinstance(entry, dict) and all(isinstance(entry.get(one), str) for one in fields)
    return entry if whole else None


def _is(library: Path, digest: str) -> bool:
    try:
        return hashlib.sha256(library.read_bytes()).hexdigest() == digest
    except OSError:
        return False
