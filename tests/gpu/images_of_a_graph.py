"""A process that captures two calls, and finds the image of each kernel in the graph: `images_of_a_graph LANGUAGE`.

What the calls of cuTile and Triton launch has one symbol and two images.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import torch
from cuda.bindings import driver as cuda

from tests.unit.kernels import softmax
from tilewright.frontends.protocol import FRONTENDS
from tilewright.gpu.driver import ok
from tilewright.programs.images import kernels


def cutile_calls(x: torch.Tensor, out: torch.Tensor) -> list[Callable[[], Any]]:
    import cuda.tile as ct

    made = [ct.kernel(softmax._pyfunc, opt_level=level) for level in (0, 3)]
    stream = torch.cuda.current_stream
    return [lambda kernel=kernel: ct.launch(stream(), (len(x),), kernel, (x, out, 64)) for kernel in made]


def triton_calls(x: torch.Tensor, out: torch.Tensor) -> list[Callable[[], Any]]:
    import triton
    import triton.language as tl

    @triton.jit
    def double(x, out, N: tl.constexpr):  # type: ignore[no-untyped-def]
        places = tl.program_id(0) * N + tl.arange(0, N)
        tl.store(out + places, 2 * tl.load(x + places))

    globals()["tl"] = tl
    return [lambda warps=warps: double[(len(x),)](x, out, N=64, num_warps=warps) for warps in (1, 4)]


def torch_calls(x: torch.Tensor, out: torch.Tensor) -> list[Callable[[], Any]]:
    works = [lambda a: torch.softmax(torch.nn.functional.gelu(a), -1), lambda a: torch.sin(a) * a]
    compiled = [torch.compile(work) for work in works]
    return [lambda work=work: out.copy_(work(x)) for work in compiled]


def captured(graph: torch.cuda.CUDAGraph) -> list[tuple[str, list[int]]]:
    """Each kernel's symbol in a graph, and its handles."""
    raw = cuda.CUgraph(graph.raw_cuda_graph())
    _, count = ok(cuda.cuGraphGetNodes(raw), "counting nodes")
    nodes, _ = ok(cuda.cuGraphGetNodes(raw, count), "listing nodes")
    found = []
    for node in nodes:
        if ok(cuda.cuGraphNodeGetType(node), "asking for a type") == cuda.CUgraphNodeType.CU_GRAPH_NODE_TYPE_KERNEL:
            launch = ok(cuda.cuGraphKernelNodeGetParams(node), "reading a node")
            named = cuda.cuFuncGetName(launch.func) if int(launch.func) else cuda.cuKernelGetName(launch.kern)
            found.append((ok(named, "asking for a name").decode(), [int(launch.func), int(launch.kern)]))
    return found


def main(language: str) -> None:
    torch.cuda.init()
    runtime = FRONTENDS[language].runtime()
    source = runtime.watch_images()
    x = torch.randn(128, 64, device="cuda")
    out = torch.empty_like(x)
    calls = {"cutile": cutile_calls, "triton": triton_calls, "torch": torch_calls}[language](x, out)
    for _ in range(3):
        for call in calls:
            call()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph(keep_graph=True)
    with runtime.capturing() as kept, torch.cuda.graph(graph):
        for call in calls:
            call()
    symbols, images = [], []
    for symbol, handles in captured(graph):
        image = next((image for handle in handles if handle and (image := source.of(handle))), None)
        print(f"{symbol}: {'no image' if image is None else f'{len(image)} bytes'}, handles {handles}")
        if image is not None:
            assert symbol in kernels(image)
            library = ok(cuda.cuLibraryLoadData(image, [], [], 0, [], [], 0), "loading an image again")
            ok(cuda.cuLibraryGetKernel(library, symbol.encode()), "finding a kernel again")
            symbols.append(symbol)
            images.append(image)
    assert len(set(images)) == 2, "each call has an image of its own"
    assert language == "torch" or (len(set(symbols)) == 1 and len(kept) == 2)
    assert set(images) <= set(source.images())


if __name__ == "__main__":
    main(sys.argv[1])
