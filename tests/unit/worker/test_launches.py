"""What CUPTI's records say: read as CUPTI lays them out, handed over by a library that stands for it."""

from __future__ import annotations

import ctypes
import re
import shutil
import struct
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tilewright.gpu import cupti as reader
from tilewright.gpu.cupti import (
    KERNEL,
    MEMCPY,
    MEMSET,
    PLACES,
    Activity,
    NotRecorded,
    activity,
    needed_bytes,
    without_the_drivers,
)
from tilewright.wire.launches import CopyLaunch, KernelLaunch, MemsetLaunch
from tilewright.worker.launches import LaunchRecorder, without_marks

NAMES: list[Any] = []  # kept: records lead to them

U8, U16, U32, U64 = ctypes.c_uint8, ctypes.c_uint16, ctypes.c_uint32, ctypes.c_uint64


class Kernel(ctypes.Structure):
    """CUpti_ActivityKernel10, of CUDA 13.0: without gaps."""

    _pack_ = 1
    _fields_ = (
        [("kind", U32), ("cacheConfig", U8), ("sharedMemoryConfig", U8), ("registersPerThread", U16)]
        + [("partitionedGlobalCacheRequested", U32), ("partitionedGlobalCacheExecuted", U32)]
        + [(name, U64) for name in ("start", "end", "completed")]
        + [(name, U32) for name in ("deviceId", "contextId", "streamId", "gridX", "gridY", "gridZ")]
        + [(name, U32) for name in ("blockX", "blockY", "blockZ", "staticSharedMemory", "dynamicSharedMemory")]
        + [(name, U32) for name in ("localMemoryPerThread", "localMemoryTotal", "correlationId")]
        + [(name, U64) for name in ("gridId", "name", "reserved0", "queued", "submitted")]
        + [(name, U8) for name in ("launchType", "isCarveoutRequested", "carveoutRequested", "padding")]
        + [("sharedMemoryExecuted", U32), ("graphNodeId", U64), ("rest", U8 * 64)]
    )


class Memcpy(ctypes.Structure):
    """CUpti_ActivityMemcpy6."""

    _pack_ = 1
    _fields_ = (
        [("kind", U32)]
        + [(name, U8) for name in ("copyKind", "srcKind", "dstKind", "flags")]
        + [(name, U64) for name in ("bytes", "start", "end")]
        + [(name, U32) for name in ("deviceId", "contextId", "streamId", "correlationId", "runtimeId", "pad")]
        + [("reserved0", U64), ("graphNodeId", U64), ("graphId", U32), ("rest", U8 * 20)]
    )


class Memset(ctypes.Structure):
    """CUpti_ActivityMemset4."""

    _pack_ = 1
    _fields_ = (
        [("kind", U32), ("value", U32)]
        + [(name, U64) for name in ("bytes", "start", "end")]
        + [(name, U32) for name in ("deviceId", "contextId", "streamId", "correlationId")]
        + [("flags", U16), ("memoryKind", U16), ("pad", U32), ("reserved0", U64), ("graphNodeId", U64)]
        + [("rest", U8 * 16)]
    )


STRUCTURES = {KERNEL: Kernel, MEMCPY: Memcpy, MEMSET: Memset}


def kernel(symbol: str, grid: int = 4, call: int = 0, node: int = 0) -> bytes:
    name = ctypes.create_string_buffer(symbol.encode())
    NAMES.append(name)
    return bytes(
        Kernel(kind=KERNEL, start=2**63, end=2**63 + 5, gridX=grid, gridY=2, gridZ=3, blockX=128, blockY=5, blockZ=1,
               staticSharedMemory=77, correlationId=call, graphNodeId=node,
               name=ctypes.addressof(name), registersPerThread=255, streamId=7)
    )  # fmt: skip


def memset(size: int, call: int = 0, node: int = 0) -> bytes:
    return bytes(Memset(kind=MEMSET, bytes=size, correlationId=call, graphNodeId=node, memoryKind=3, start=3, end=9))


def memcpy(size: int, kind: int = 8, source: int = 3, to: int = 3) -> bytes:
    return bytes(Memcpy(kind=MEMCPY, copyKind=kind, srcKind=source, dstKind=to, bytes=size, flags=1))


MARK = "_ZN2at4cuda4spin11spin_kernelEl"


def known(record: bytes) -> Activity:
    kind = struct.unpack_from("<I", record)[0]
    return activity(kind, record[: needed_bytes(kind)])


def test_a_kernels_record_is_read() -> None:
    launch = KernelLaunch(symbol="_Z3sumPf", grid=(9, 2, 3))
    assert known(kernel("_Z3sumPf", grid=9, call=31)) == (launch, 31, 0, 2**63, 2**63 + 5)
    assert known(kernel("k", node=1 << 40)).node == 1 << 40


def test_a_symbol_without_an_end_is_cut_and_one_that_is_missing_is_said_to_be() -> None:
    (launch, *_) = known(kernel("x" * 9000))
    assert isinstance(launch, KernelLaunch) and launch.symbol == "x" * 8192
    nameless = bytearray(kernel("x"))
    struct.pack_into("<Q", nameless, PLACES[KERNEL]["name"][0], 0)
    assert known(bytes(nameless))[0].symbol == "?"  # type: ignore[union-attr]


def test_memsets_and_copies_are_read() -> None:
    assert known(memset(2**40, call=5, node=6)) == (MemsetLaunch(size=2**40), 5, 6, 3, 9)
    assert known(memcpy(2**33)).launch == CopyLaunch(size=2**33)


@pytest.mark.parametrize(
    ("kind", "source", "to", "way"),
    [
        (1, 1, 3, "to the GPU"),
        (2, 3, 2, "to the host"),
        (8, 3, 3, "on the GPU"),
        (9, 1, 1, "elsewhere"),
        (0, 3, 5, "on the GPU"),
        (0, 2, 3, "elsewhere"),
        (6, 4, 3, "elsewhere"),
    ],
)
def test_a_copy_is_known_by_where_it_leads(kind: int, source: int, to: int, way: str) -> None:
    assert known(memcpy(1, kind, source, to)).launch == CopyLaunch.model_validate({"size": 1, "way": way})


@given(st.sampled_from(sorted(PLACES)), st.data())
def test_any_bytes_are_read(kind: int, data: st.DataObject) -> None:
    record = bytearray(data.draw(st.binary(min_size=needed_bytes(kind), max_size=needed_bytes(kind))))
    if kind == KERNEL:
        struct.pack_into("<Q", record, PLACES[KERNEL]["name"][0], 0)  # the one field that is followed
    assert activity(kind, bytes(record)).launch


def test_kernels_by_which_the_driver_sets_memory_are_its_own() -> None:
    seen = [
        known(one)
        for one in (
            kernel("own", call=1), memset(64, call=2), kernel("drivers", call=2),
            # of one graph, which one call launched
            kernel("in a graph", call=3, node=7), memset(8, call=3, node=8), kernel("drivers", call=3, node=8),
            # calls that have no number are not one call
            memset(4), kernel("unnumbered"),
        )
    ]  # fmt: skip
    left = [one.launch for one in without_the_drivers(seen)]
    symbols = [one.symbol for one in left if isinstance(one, KernelLaunch)]
    assert symbols == ["own", "in a graph", "unnumbered"]
    assert len(left) == 6


def test_two_marks_are_needed_and_a_third_is_the_candidates() -> None:
    mark, own = (known(kernel(name)) for name in (MARK, "own"))
    assert without_marks([mark, own, mark]) == [own]
    assert without_marks([mark, mark, own, mark]) == [own, mark]
    for seen in ([], [own], [mark, own]):
        with pytest.raises(NotRecorded, match="did not record the kernels that this process launches itself"):
            without_marks(seen)
    with pytest.raises(NotRecorded, match="it launches 16385 times"):
        without_marks([mark, mark, *[own] * 16385])


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if not shutil.which("cc"):
        pytest.skip("no C compiler")
    made = tmp_path_factory.mktemp("cupti") / "libcupti.so"
    source = Path(__file__).with_name("cupti.c")
    subprocess.run(["cc", "-O1", "-Wall", "-Werror", "-shared", "-fPIC", "-o", made, source], check=True)
    return made


class StandIn:
    """The library that stands for CUPTI, loaded anew."""

    def __init__(self, path: Path) -> None:
        self.path = str(path)
        self.library = ctypes.CDLL(self.path)

    def does(self, *records: bytes) -> None:
        for record in records:
            self.library.stand_in_lay(record, ctypes.c_size_t(len(record)))


@pytest.fixture
def cupti(library: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[StandIn]:
    own = tmp_path / "libcupti.so"
    shutil.copy(library, own)  # each test has its variables anew
    stand_in = StandIn(own)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    monkeypatch.setattr(torch.cuda, "_sleep", lambda cycles: stand_in.does(kernel(MARK)))
    yield stand_in


def test_what_a_call_does_is_recorded_and_nothing_before_it(cupti: StandIn) -> None:
    recorder = LaunchRecorder(cupti.path)
    assert cupti.library.stand_in_enabled() == 1 << 1 | 1 << 2 | 1 << 10
    cupti.does(kernel("before"), memset(4), kernel("before"))
    unknown = struct.pack("<I", 17).ljust(64, b"\xff")

    def call() -> None:
        cupti.does(kernel("a"), unknown, memset(8, call=4), kernel("drivers", call=4), memcpy(16), kernel("b"))

    for _ in range(3):  # buffers are used again
        found = recorder.record(call)
        assert [getattr(one.launch, "symbol", one.launch.kind) for one in found] == ["a", "memset", "copy", "b"]
        assert [one.end - one.start for one in found] == [5, 6, 0, 5]
    assert recorder.record(lambda: None) == []
    assert len(recorder._recorder._buffers) < 12


def test_a_call_that_raises_leaves_nothing_behind(cupti: StandIn) -> None:
    recorder = LaunchRecorder(cupti.path)

    def call() -> None:
        cupti.does(kernel("lost"))
        raise ValueError("no such size")

    with pytest.raises(ValueError, match="no such size"):
        recorder.record(call)
    assert recorder.record(lambda: cupti.does(kernel("own")))[0].launch.symbol == "own"  # type: ignore[union-attr]


def test_other_threads_may_ask_for_buffers(cupti: StandIn) -> None:
    recorder = LaunchRecorder(cupti.path)

    def call() -> None:
        thread = threading.Thread(target=lambda: (cupti.does(kernel("a")), recorder._recorder._hand_over()))
        thread.start()
        thread.join()
        cupti.does(kernel("b"))

    assert sorted(one.launch.symbol for one in recorder.record(call)) == ["a", "b"]  # type: ignore[union-attr]


def test_records_that_are_lost_or_cut_off_are_no_record(cupti: StandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    recorder = LaunchRecorder(cupti.path)
    cupti.library.stand_in_drop(ctypes.c_size_t(3))
    assert recorder.record(lambda: None) == []  # dropped before
    with pytest.raises(NotRecorded, match="dropped 3 records"):
        recorder.record(lambda: cupti.library.stand_in_drop(ctypes.c_size_t(3)))
    with pytest.raises(NotRecorded, match="is cut off"):
        recorder.record(lambda: cupti.does(kernel("a")[:100]))
    monkeypatch.setattr(torch.cuda, "_sleep", lambda cycles: None)
    with pytest.raises(NotRecorded, match="did not record the kernels"):
        recorder.record(lambda: cupti.does(kernel("own")))


def test_a_buffer_that_cannot_be_made_is_none(cupti: StandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader, "BUFFER_BYTES", 1 << 62)
    with pytest.raises(NotRecorded, match=r"cuptiActivityFlushAll failed \(error 8\)"):
        LaunchRecorder(cupti.path).record(lambda: None)


@pytest.mark.parametrize(
    ("prepare", "why"),
    [
        (lambda library: library.stand_in_version(21), "version 21 are not known"),
        (lambda library: library.stand_in_version(140000), "version 140000 are not known"),
        (lambda library: library.stand_in_fail(39), r"cuptiActivityEnable failed \(error 39\)"),
    ],
)
def test_a_cupti_that_cannot_be_used_is_named(cupti: StandIn, prepare: Callable[[Any], None], why: str) -> None:
    prepare(cupti.library)
    with pytest.raises(NotRecorded, match=why):
        LaunchRecorder(cupti.path)


def test_a_cupti_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(NotRecorded, match="cannot be loaded"):
        LaunchRecorder(str(tmp_path / "libcupti.so"))


HEADER = "cupti_activity.h"
PACKAGES = Path(sys.prefix) / "lib" / f"python3.{sys.version_info.minor}" / "site-packages"


def header_folders() -> list[Path]:
    """Where CUPTI's headers are on this machine."""
    places = [*Path("/usr/local").glob("cuda*"), PACKAGES / "nvidia", PACKAGES / "triton"]
    found = {path.resolve().parent for place in places for path in place.glob(f"**/{HEADER}")}
    return sorted(found)


@pytest.mark.skipif(not shutil.which("cc"), reason="no C compiler")
def test_the_fields_lie_where_the_headers_say(tmp_path: Path) -> None:
    folders = header_folders()
    if not folders:
        pytest.skip(f"no {HEADER} on this machine")
    checked = 0
    for folder in folders:
        text = (folder / HEADER).read_text(errors="replace")
        lines = []
        names = {KERNEL: "Kernel", MEMCPY: "Memcpy", MEMSET: "Memset"}
        for kind, name in names.items():
            newest = max(re.findall(rf"\}} (CUpti_Activity{name}\d+);", text), key=lambda one: (len(one), one))
            for field, (at, form) in PLACES[kind].items():
                lines.append(f"offsetof({newest}, {field}) == {at}")
                lines.append(f"sizeof((({newest} *)0)->{field}) == {struct.calcsize(form)}")
            for field, _ in STRUCTURES[kind]._fields_[-3:-1]:
                lines.append(f"offsetof({newest}, {field}) == {getattr(STRUCTURES[kind], field).offset}")
        enums = {"MEMCPY": MEMCPY, "MEMSET": MEMSET, "CONCURRENT_KERNEL": KERNEL}
        lines += [f"CUPTI_ACTIVITY_KIND_{name} == {kind}" for name, kind in enums.items()]
        lines += ["CUPTI_ACTIVITY_FLAG_FLUSH_FORCED == 1", "CUPTI_ERROR_MAX_LIMIT_REACHED == 12"]
        kinds = {"HTOD": reader._TO_GPU, "DTOH": reader._TO_HOST, "DTOD": reader._WITHIN}
        lines += [f"CUPTI_ACTIVITY_MEMCPY_KIND_{name} == {kind}" for name, kind in kinds.items()]
        memories = ("DEVICE", "MANAGED", "DEVICE_STATIC", "MANAGED_STATIC")
        lines += [
            f"CUPTI_ACTIVITY_MEMORY_KIND_{name} == {kind}"
            for name, kind in zip(memories, sorted(reader._ON_GPU), strict=True)
        ]
        source = tmp_path / "places.c"
        asserts = [f'_Static_assert({line}, "{line}");' for line in lines]
        source.write_text("\n".join(["#include <stddef.h>", f"#include <{HEADER}>", *asserts]))
        include = [f"-I{place}" for place in (folder, *folders, PACKAGES / "nvidia" / "cu13" / "include")]
        done = subprocess.run(["cc", "-w", "-fsyntax-only", *include, source], capture_output=True, text=True)
        if "No such file" in done.stderr:  # of CUPTI's headers alone, without CUDA's
            continue
        assert done.returncode == 0, done.stderr
        checked += 1
    if not checked:
        pytest.skip("CUDA's headers, which CUPTI's include, are not on this machine")
