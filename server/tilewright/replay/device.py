"""The replayer's own part of the GPU: a stream, events, its kernels, memory beside the planned addresses, and the word
by which the GPU tells the host that a call is done."""

from __future__ import annotations

import ctypes
import statistics
import time
from collections.abc import Sequence
from importlib.resources import files
from typing import Any

from cuda.bindings import driver as cuda

from tilewright.gpu.driver import Context, ok
from tilewright.gpu.pages import Pages

NAMES = ("read_all", "digest", "publish", "nothing", "scrub", "probe")
FLUSHES = 2
"""Times the size of the L2 that are read before a call."""
LOOK_EVERY = 2000
"""Looks at the host's word between two at the stream, which tell of errors."""
PROBED_CYCLES = 40_000
"""20 us at 2 GHz."""
IDLE_PROBES, PROBE_LIMIT_S, SETTLED_S = 500, 5.0, 0.3
"""Probes in a row without a higher clock; seconds for one at most; seconds of rest before them."""


class Hang(Exception):
    """The GPU was not done in time; what it runs cannot be ended but with its process."""


class Device:
    """GPU 0, the replayer's stream on it, and its kernels. Raises `DriverError` where one cannot be had."""

    def __init__(self) -> None:
        self.context = Context()
        self.stream = ok(cuda.cuStreamCreate(cuda.CUstream_flags.CU_STREAM_NON_BLOCKING), "making a stream")
        self._start, self._end = (ok(cuda.cuEventCreate(0), "making an event") for _ in range(2))
        self.pages = Pages()
        self._host = int(ok(cuda.cuMemHostAlloc(64, cuda.CU_MEMHOSTALLOC_DEVICEMAP), "allocating host memory"))
        self._word = ctypes.c_uint64.from_address(self._host)
        attribute = self.context.attribute
        self._sms = attribute("MULTIPROCESSOR_COUNT")
        self._shared = attribute("MAX_SHARED_MEMORY_PER_BLOCK_OPTIN")
        self._flush_bytes = FLUSHES * max(attribute("L2_CACHE_SIZE"), 1 << 20) // 16 * 16
        self._flush = self.allocate(self._flush_bytes)
        self._sum = self.allocate(64)
        source = files("tilewright.replay").joinpath("kernels.ptx").read_bytes() + b"\0"
        module = ok(cuda.cuModuleLoadData(source), "compiling the replayer's kernels")
        self._kernels = {
            name: ok(cuda.cuModuleGetFunction(module, name.encode()), "compiling the replayer's kernels")
            for name in NAMES
        }
        which = cuda.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
        ok(cuda.cuFuncSetAttribute(self._kernels["scrub"], which, self._shared), "preparing to scrub")
        self.empty = self._empty_graph()
        """An executable graph that does nothing, as a program would do it."""

    def allocate(self, size: int) -> int:
        """The address of new memory of `size` bytes, zeros, beside the planned addresses."""
        at = ok(cuda.cuMemAlloc(max(size, 1)), f"allocating {size} bytes")
        ok(cuda.cuMemsetD8(at, 0, max(size, 1)), "clearing memory")
        return int(at)

    def free(self, at: int) -> None:
        ok(cuda.cuMemFree(cuda.CUdeviceptr(at)), "freeing memory")

    def write(self, at: int, data: bytes | bytearray | memoryview) -> None:
        """Copy bytes of the host to the GPU, and wait."""
        if data:
            ok(cuda.cuMemcpyHtoD(cuda.CUdeviceptr(at), data, len(data)), "writing to the GPU")

    def read(self, at: int, into: bytearray | memoryview) -> None:
        """Copy as many bytes of the GPU to the host as it takes, and wait."""
        if into:
            ok(cuda.cuMemcpyDtoH(into, cuda.CUdeviceptr(at), len(into)), "reading from the GPU")

    def copy(self, to: int, source: int, size: int) -> None:
        """Copy within the GPU, on the stream."""
        if size:
            answer = cuda.cuMemcpyDtoDAsync(cuda.CUdeviceptr(to), cuda.CUdeviceptr(source), size, self.stream)
            ok(answer, "copying on the GPU")

    def poison(self, at: int, size: int) -> None:
        """Fill memory with 0xFF, which makes NaN in every float dtype, on the stream."""
        if size:
            ok(cuda.cuMemsetD8Async(cuda.CUdeviceptr(at), 0xFF, size, self.stream), "poisoning memory")

    def scrub(self) -> None:
        """Overwrite the shared memory of every SM, on the stream: a block that takes all of it, twice an SM."""
        self._launch("scrub", 2 * self._sms, 1024, (self._shared // 4,), (ctypes.c_uint32,), self._shared)

    def unmark(self) -> None:
        """Let no line of the L2 outlast others: a kernel may have marked those that it means to use again. And poison
        what `flush` reads, on the stream, and read it, so that no line is to be written back while a program runs."""
        ok(cuda.cuCtxResetPersistingL2Cache(), "resetting the L2")
        self.poison(self._flush, self._flush_bytes)
        self.flush()

    def flush(self) -> None:
        """Read memory until nothing else is in the L2, on the stream."""
        values = (self._flush, self._flush_bytes // 16, self._sum + 32)
        self._launch("read_all", 4 * self._sms, 256, values, (ctypes.c_uint64,) * 3)

    def digest_of(self, areas: Sequence[tuple[int, int, int]], limit_s: float) -> int:
        """The digest of whole words: address, bytes and key of each area. Raises `Hang`, `DriverError`."""
        word = self._word
        word.value = 0
        for at, size, key in areas:
            values = (at, size // 8, key, self._sum)
            self._launch("digest", 4 * self._sms, 256, values, (ctypes.c_uint64,) * 4)
        self._launch("publish", 1, 1, (self._sum, self._host), (ctypes.c_uint64,) * 2)
        deadline = time.monotonic() + limit_s
        while True:
            for _ in range(LOOK_EVERY):
                if found := word.value:
                    return found
            if self._is_done(deadline) and not word.value:
                raise Hang("the GPU is done, and the host's word was not written")

    def wait(self, deadline: float) -> None:
        """Wait for the stream until `deadline` (monotonic seconds). Raises `Hang`, `DriverError`."""
        while not self._is_done(deadline):
            pass

    def _is_done(self, deadline: float) -> bool:
        """Whether the stream is done. Raises as `wait` does."""
        error, *_ = cuda.cuStreamQuery(self.stream)
        if error != cuda.CUresult.CUDA_ERROR_NOT_READY:
            ok((error,), "running a program")
            return True
        if time.monotonic() > deadline:
            raise Hang("the GPU was not done in time")
        return False

    def mark(self, end: bool) -> None:
        """Record the event before a program, or the one after it."""
        ok(cuda.cuEventRecord(self._end if end else self._start, self.stream), "recording an event")

    def launch(self, graph: Any) -> None:
        """Launch an executable graph on the stream."""
        ok(cuda.cuGraphLaunch(graph, self.stream), "launching a program")

    def probe(self) -> None:
        """Have the SM clock measured, on the stream."""
        self._launch("probe", 1, 1, (PROBED_CYCLES, self._host + 8), (ctypes.c_uint64,) * 2)

    def probed_mhz(self) -> float:
        """The SM clock, once the stream is done."""
        cycles, ns = (ctypes.c_uint64 * 2).from_address(self._host + 8)
        return 1000 * cycles / ns if ns else 0.0

    def idle_mhz(self) -> float:
        """The SM clock with nothing else to do, once it rises no more. Behind heavy work it is higher for a while, and
        that of a GPU which slept is lower."""
        time.sleep(SETTLED_S)
        best, probed = 0.0, list[float]()
        while len(probed) < IDLE_PROBES:
            self.probe()
            self.wait(time.monotonic() + PROBE_LIMIT_S)
            probed.append(self.probed_mhz())
            if probed[-1] > 1.001 * best:
                best, probed = probed[-1], []
        return statistics.median(probed)

    def marked_us(self) -> float:
        """Microseconds between the two events, once the stream is done."""
        return 1000 * float(ok(cuda.cuEventElapsedTime(self._start, self._end), "reading events"))

    def _empty_graph(self) -> Any:
        graph = ok(cuda.cuGraphCreate(0), "making a graph")
        params = cuda.CUDA_KERNEL_NODE_PARAMS()
        params.func = self._kernels["nothing"]
        params.gridDimX = params.gridDimY = params.gridDimZ = params.blockDimY = params.blockDimZ = 1
        params.blockDimX = 32
        ok(cuda.cuGraphAddKernelNode(graph, [], 0, params), "making a graph")
        made = ok(cuda.cuGraphInstantiate(graph, 0), "making a graph executable")
        ok(cuda.cuGraphDestroy(graph), "freeing a graph")
        ok(cuda.cuGraphUpload(made, self.stream), "uploading a graph")
        return made

    def _launch(
        self, name: str, grid: int, block: int, values: tuple[int, ...], types: tuple[Any, ...], shared: int = 0
    ) -> None:
        arguments = (values, types)
        answer = cuda.cuLaunchKernel(self._kernels[name], grid, 1, 1, block, 1, 1, shared, self.stream, arguments, 0)
        ok(answer, f"launching {name}")
