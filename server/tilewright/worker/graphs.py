"""A candidate's own CUDA graphs in a process that captures.

torch refuses to replay a graph while a stream is captured. So here its nodes become a part of the captured graph, which
does the same work in the same place. And what a graph allocates keeps its pages, which torch's own allocator would see
to by a pool of its own.
"""

from __future__ import annotations

from typing import Any

import torch
from cuda.bindings import driver as cuda

from tilewright.gpu.driver import ok
from tilewright.worker.allocator import Arena

_capture_info = getattr(cuda, "cuStreamGetCaptureInfo_v3", cuda.cuStreamGetCaptureInfo)
_set_dependencies = getattr(cuda, "cuStreamUpdateCaptureDependencies_v2", cuda.cuStreamUpdateCaptureDependencies)
"""So named before CUDA 13."""


def nest_own_graphs(arena: Arena) -> None:
    """Let torch's graphs be replayed while a stream is captured. To be called before a candidate is imported: a graph
    has to keep its nodes from its capture on."""
    original = torch.cuda.CUDAGraph

    class NestedGraph(original):  # type: ignore[misc,valid-type]
        def __init__(self, keep_graph: bool = False) -> None:
            super().__init__(keep_graph=True)

        def capture_begin(self, *arguments: Any, **named: Any) -> None:
            arena.hold_pages()
            try:
                super().capture_begin(*arguments, **named)
            except BaseException:
                arena.let_pages_go()
                raise

        def capture_end(self) -> None:
            try:
                super().capture_end()
            finally:
                arena.let_pages_go()

        def replay(self) -> None:
            if not torch.cuda.is_current_stream_capturing():
                super().replay()
                return
            stream = cuda.CUstream(torch.cuda.current_stream().cuda_stream)
            _, _, graph, before, *_ = ok(_capture_info(stream), "asking about a capture")
            before = list(before or [])
            child = cuda.CUgraph(self.raw_cuda_graph())
            node = ok(cuda.cuGraphAddChildGraphNode(graph, before, len(before), child), "nesting a graph")
            flags = cuda.CUstreamUpdateCaptureDependencies_flags.CU_STREAM_SET_CAPTURE_DEPENDENCIES
            ok(_set_dependencies(stream, [node], None, 1, int(flags)), "nesting a graph")

    torch.cuda.CUDAGraph = NestedGraph  # type: ignore[misc]
    torch.cuda.graphs.CUDAGraph = NestedGraph  # type: ignore[misc]
