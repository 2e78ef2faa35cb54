"""What the GPU does, and how long it takes, as CUPTI's activity records tell it.

CUPTI (CUDA Profiling Tools Interface, "CUPTI Activity API") writes a record of each kernel, memset and copy that the
GPU has run, those of CUDA graphs among them, into buffers that it is given. A record's type has a new version now and
then, which adds fields at its end. What is read here lay in the same place in all versions from CUDA 12.4 to 13.5; a
test compares the places with the headers of this machine.

CUPTI calls back from threads of its own, and with locks of its own held: the callbacks do no more than to hand memory
out and to put it by. Nothing is switched off in between: CUPTI 12 and 13.0 could hang there.
"""

from __future__ import annotations

import ctypes
import struct
import sys
from collections.abc import Callable, Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal, NamedTuple

from tilewright.wire.launches import MAX_SYMBOL, CopyLaunch, KernelLaunch, Launch, MemsetLaunch

VERSIONS = (range(22, 100), range(130000, 140000))
"""Of CUPTI's API, whose records are known: CUDA 12.4 and later, and CUDA 13."""
MEMCPY, MEMSET, KERNEL = 1, 2, 10
"""CUPTI_ACTIVITY_KIND_MEMCPY, _MEMSET and _CONCURRENT_KERNEL."""
_HAND_ALL_OVER = 1
"""CUPTI_ACTIVITY_FLAG_FLUSH_FORCED: buffers that are not full, or have unfinished records, too."""
_NO_MORE = 12
"""CUPTI_ERROR_MAX_LIMIT_REACHED, at a buffer's end."""
BUFFER_BYTES = 4 << 20

_TIMES = {"start": (16, "Q"), "end": (24, "Q")}
"""In nanoseconds of the GPU's own clock."""
PLACES: dict[int, dict[str, tuple[int, str]]] = {
    KERNEL: _TIMES | {
        "gridX": (52, "I"), "gridY": (56, "I"), "gridZ": (60, "I"),
        "correlationId": (92, "I"), "name": (104, "Q"), "graphNodeId": (144, "Q"),
    },
    MEMCPY: _TIMES | {
        "copyKind": (4, "B"), "srcKind": (5, "B"), "dstKind": (6, "B"), "bytes": (8, "Q"),
        "correlationId": (44, "I"), "graphNodeId": (64, "Q"),
    },
    MEMSET: _TIMES | {"bytes": (8, "Q"), "correlationId": (44, "I"), "graphNodeId": (64, "Q")},
}  # fmt: skip
"""Where the fields of a record lie, and how they are packed, by the record's kind. The kind itself is its first word.
The records are CUpti_ActivityKernel9 to 13, _ActivityMemcpy5 to 7, _ActivityMemset4 and 5."""
_TO_GPU, _TO_HOST, _WITHIN = 1, 2, 8
"""Kinds of copies (CUpti_ActivityMemcpyKind)."""
_ON_GPU = frozenset({3, 5, 6, 7})
"""Kinds of memory (CUpti_ActivityMemoryKind): device and managed, each also static."""

_Requested = ctypes.CFUNCTYPE(
    None, ctypes.POINTER(ctypes.c_void_p), ctypes.POINTER(ctypes.c_size_t), ctypes.POINTER(ctypes.c_size_t)
)
_Completed = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_uint32, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_size_t)


class NotRecorded(Exception):
    """CUPTI does not tell what the GPU does, and why."""


class Activity(NamedTuple):
    """What a record says. `call` is the number of the host's call that launched it, `node` the node of the graph, if
    there was one; or 0. Nanoseconds at which it began and ended, by the GPU's clock."""

    launch: Launch
    call: int
    node: int
    start: int
    end: int


class Recorder:
    """CUPTI's records of this process, from now on. To be made before CUDA is used: code that is loaded earlier, and
    graphs that are instantiated earlier, may be missing in them."""

    def __init__(self, library: str = "") -> None:
        """`library`: CUPTI's file, if it is not to be looked for. Raises `NotRecorded`."""
        self._buffers: dict[int, Any] = {}  # all of them, by address: CUPTI has some, others are full or free
        self._free: list[int] = []
        self._filled: list[tuple[int, int]] = []
        self._keeps = False
        try:
            self._cupti = ctypes.CDLL(library or cupti_library())
        except OSError as error:
            raise NotRecorded(f"CUPTI cannot be loaded: {error}") from None
        version = ctypes.c_uint32()
        self._ask("cuptiGetVersion", ctypes.byref(version))
        if not any(version.value in known for known in VERSIONS):
            raise NotRecorded(f"the records of CUPTI's version {version.value} are not known here")
        self._callbacks = _Requested(self._give), _Completed(self._take)  # kept: CUPTI calls them to the end
        self._ask("cuptiActivityRegisterCallbacks", *self._callbacks)
        for kind in PLACES:
            self._ask("cuptiActivityEnable", ctypes.c_int(kind))

    def record(self, call: Callable[[], object]) -> list[Activity]:
        """Whatever the GPU did for `call`, but for kernels of the driver's own. The GPU has nothing to do before it,
        and `call` waits for the GPU before it returns. Raises `NotRecorded`, and whatever `call` raises."""
        self._hand_over()  # what was done before
        self._dropped()
        self._keeps = True
        try:
            call()
            self._hand_over()
            activities = [one for at, size in self._filled for one in self.read(at, size)]
        finally:
            self._keeps = False
            self._free += [at for at, _ in self._filled]
            self._filled.clear()
        if dropped := self._dropped():
            raise NotRecorded(f"CUPTI dropped {dropped} records")
        return without_the_drivers(activities)

    def read(self, at: int, size: int) -> Iterator[Activity]:
        """What the records in `size` bytes of a buffer say. Raises `NotRecorded` for one that does not fit in them."""
        record = ctypes.c_void_p()
        walk = self._cupti.cuptiActivityGetNextRecord
        while not (code := walk(ctypes.c_void_p(at), ctypes.c_size_t(size), ctypes.byref(record))):
            place = record.value or 0
            if not at <= place <= at + size - 4:
                raise NotRecorded("a record of CUPTI's lies outside of its buffer")
            kind = ctypes.c_uint32.from_address(place).value
            if kind in PLACES:
                if place + needed_bytes(kind) > at + size:
                    raise NotRecorded("a record of CUPTI's is cut off")
                yield activity(kind, ctypes.string_at(place, needed_bytes(kind)))
        if code != _NO_MORE:
            raise NotRecorded(f"the records of CUPTI cannot be read (error {code})")

    def _hand_over(self) -> None:
        self._ask("cuptiActivityFlushAll", ctypes.c_uint32(_HAND_ALL_OVER))

    def _dropped(self) -> int:
        """Records for which there was no room since this was asked last."""
        count = ctypes.c_size_t()
        self._ask("cuptiActivityGetNumDroppedRecords", None, ctypes.c_uint32(0), ctypes.byref(count))
        return count.value

    def _ask(self, name: str, *arguments: Any) -> None:
        if code := getattr(self._cupti, name)(*arguments):
            raise NotRecorded(f"{name} failed (error {code}): another profiler may be at work")

    def _give(self, buffer: Any, size: Any, most: Any) -> None:
        """An empty buffer for CUPTI; none where there is no memory, and CUPTI counts what it drops then."""
        try:
            if self._free:
                at = self._free.pop()
            else:
                made = (ctypes.c_uint64 * (BUFFER_BYTES // 8))()
                at = ctypes.addressof(made)
                self._buffers[at] = made
            buffer[0], size[0], most[0] = at, BUFFER_BYTES, 0
        except Exception as error:  # an exception cannot pass through CUPTI
            buffer[0], size[0], most[0] = None, 0, 0
            print(f"CUPTI gets no buffer: {error!r}", file=sys.stderr)

    def _take(self, context: Any, stream: int, buffer: int, size: int, valid: int) -> None:
        """A buffer that CUPTI has done with: one that nobody will read is given to it again."""
        if self._keeps and valid:
            self._filled.append((buffer, valid))
        else:
            self._free.append(buffer)


def needed_bytes(kind: int) -> int:
    """The bytes of a record of this kind that are read: as far as its last field that is used."""
    return max(at + struct.calcsize(form) for at, form in PLACES[kind].values())


def activity(kind: int, record: bytes) -> Activity:
    """What a record says, by its kind and its first `needed_bytes`."""
    found = {name: struct.unpack_from(f"<{form}", record, at)[0] for name, (at, form) in PLACES[kind].items()}
    node = found["graphNodeId"]
    launch: Launch
    if kind == KERNEL:
        launch = KernelLaunch(
            symbol=_text(found["name"]),
            grid=(found["gridX"], found["gridY"], found["gridZ"]),
        )
    elif kind == MEMSET:
        launch = MemsetLaunch(size=found["bytes"])
    else:
        launch = CopyLaunch(size=found["bytes"], way=_way(found["copyKind"], {found["srcKind"], found["dstKind"]}))
    return Activity(launch, found["correlationId"], node, found["start"], found["end"])


def _way(kind: int, memories: set[int]) -> Literal["on the GPU", "to the GPU", "to the host", "elsewhere"]:
    if kind == _WITHIN:
        return "on the GPU"
    if kind in (_TO_GPU, _TO_HOST):
        return "to the GPU" if kind == _TO_GPU else "to the host"
    return "on the GPU" if memories <= _ON_GPU else "elsewhere"


def _text(at: int) -> str:
    """A symbol in this process's memory, cut to its longest length."""
    if not at:
        return "?"
    length = ctypes.CDLL(None).strnlen(ctypes.c_void_p(at), ctypes.c_size_t(MAX_SYMBOL))
    return ctypes.string_at(at, length).decode(errors="replace") or "?"


def without_the_drivers(activities: Sequence[Activity]) -> list[Activity]:
    """The activities without kernels of the driver's own, by which it runs a memset or a copy: one call of the host, or
    one node of a graph, does one thing, so that a kernel beside a memset or a copy is such a one."""
    moved = {(one.call, one.node) for one in activities if not isinstance(one.launch, KernelLaunch) and one.call}
    return [one for one in activities if not (isinstance(one.launch, KernelLaunch) and (one.call, one.node) in moved)]


def cupti_library() -> str:
    """CUPTI's file: the one that came with torch, else the machine's own."""
    spec = find_spec("nvidia")
    places: list[Any] = [Path(place) for place in (spec.submodule_search_locations or [])] if spec else []
    for place in [*places, Path("/usr/local/cuda")]:
        if found := sorted(place.glob("**/libcupti.so*")):
            return str(found[-1])
    return "libcupti.so"
