"""Builds a graph of 400 nodes, reads it into a program, loads that, and reads it again. To be run where the stand-in is
the driver: `python -m tests.fakedriver.roundtrip`. Prints what was there, once all of it is equal."""

from __future__ import annotations

import ctypes
import random
from collections import Counter
from typing import Any

from cuda.bindings import driver as cuda

from tests.unit.programs.made import OUT, W, X, cubin, program
from tilewright.gpu.addresses import GRAIN
from tilewright.gpu.driver import ok
from tilewright.programs.format import decoded, encoded
from tilewright.programs.model import Block, Kernel, Program, checked, digest_of
from tilewright.programs.order import canonical
from tilewright.replay import load as loading
from tilewright.replay.device import Device
from tilewright.worker.nodes import described

NODES = 400
IMAGES = {digest_of(cubin(name)): cubin(name) for name in ("fill", "other")}
_Launch = cuda.CUkernelNodeAttrID


class Builder:
    """Nodes of every kind, each of which writes to a place of its own."""

    def __init__(self, device: Device) -> None:
        self.device = device
        self.source = random.Random(11)
        self.symbols: dict[int, str] = {}
        self._kept: list[Any] = []
        self._functions = []
        for name in ("fill", "other"):
            library = ok(cuda.cuLibraryLoadData(cubin(name), [], [], 0, [], [], 0), "loading")
            kernel = ok(cuda.cuLibraryGetKernel(library, name.encode()), "looking")
            self._functions.append(ok(cuda.cuKernelGetFunction(kernel), "looking"))
            self.symbols[int(self._functions[-1])] = digest_of(cubin(name))

    def kernel(self, graph: Any, number: int) -> Any:
        at, value = ctypes.c_uint64(OUT + 1024 * number), ctypes.c_uint32(number)
        places = (ctypes.c_void_p * 2)(ctypes.addressof(at), ctypes.addressof(value))
        params = cuda.CUDA_KERNEL_NODE_PARAMS()
        params.func = self._functions[number % 5 == 0]
        params.gridDimX, params.gridDimY, params.gridDimZ = 4 + 4 * (number % 3), 1, 1
        params.blockDimX, params.blockDimY, params.blockDimZ = 32, 2, 1
        params.sharedMemBytes = number % 7 * 128
        params.kernelParams = ctypes.addressof(places)
        node = ok(cuda.cuGraphAddKernelNode(graph, [], 0, params), "adding")
        attribute = cuda.CUkernelNodeAttrValue()
        if number % 4 == 1:
            attribute.clusterDim.x, attribute.clusterDim.y, attribute.clusterDim.z = 4, 1, 1
            ok(cuda.cuGraphKernelNodeSetAttribute(node, _Launch.CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION, attribute), "")
            which = _Launch.CU_LAUNCH_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE
            attribute = cuda.CUkernelNodeAttrValue()
            spread = cuda.CUclusterSchedulingPolicy.CU_CLUSTER_SCHEDULING_POLICY_SPREAD
            attribute.clusterSchedulingPolicyPreference = spread
            ok(cuda.cuGraphKernelNodeSetAttribute(node, which, attribute), "")
        elif number % 4 == 2:
            attribute.priority = -2
            ok(cuda.cuGraphKernelNodeSetAttribute(node, _Launch.CU_LAUNCH_ATTRIBUTE_PRIORITY, attribute), "")
        elif number % 4 == 3:
            attribute.cooperative = 1
            ok(cuda.cuGraphKernelNodeSetAttribute(node, _Launch.CU_LAUNCH_ATTRIBUTE_COOPERATIVE, attribute), "")
        return node

    def memset(self, graph: Any, number: int) -> Any:
        params = cuda.CUDA_MEMSET_NODE_PARAMS()
        params.dst, params.value = cuda.CUdeviceptr(OUT + 1024 * number), number % 256
        params.elementSize, params.width, params.height, params.pitch = 1 << number % 3, 10, 3, 64
        return ok(cuda.cuGraphAddMemsetNode(graph, [], 0, params, self.device.context.handle), "adding")

    def copy(self, graph: Any, number: int) -> Any:
        box = cuda.CUDA_MEMCPY3D()
        box.srcMemoryType = box.dstMemoryType = cuda.CUmemorytype.CU_MEMORYTYPE_DEVICE
        box.srcDevice, box.dstDevice = cuda.CUdeviceptr(X), cuda.CUdeviceptr(OUT + 1024 * number)
        box.srcXInBytes, box.srcPitch, box.srcHeight = 8, 32, 4
        box.dstPitch, box.dstHeight = 48, 5
        box.WidthInBytes, box.Height, box.Depth = 16, 3, 2
        return ok(cuda.cuGraphAddMemcpyNode(graph, [], 0, box, self.device.context.handle), "adding")

    def child(self, graph: Any, first: int, count: int) -> Any:
        inner = ok(cuda.cuGraphCreate(0), "making")
        nodes = [self.one(inner, number) for number in range(first, first + count)]
        self.order(inner, nodes)
        made = ok(cuda.cuGraphAddChildGraphNode(graph, [], 0, inner), "adding")
        ok(cuda.cuGraphDestroy(inner), "freeing")
        return made

    def one(self, graph: Any, number: int) -> Any:
        return (self.kernel, self.kernel, self.memset, self.copy)[number % 9 % 4](graph, number)

    def order(self, graph: Any, nodes: list[Any]) -> None:
        """Each waits for up to three before it, in forks and joins."""
        for place, node in enumerate(nodes):
            before = self.source.sample(nodes[max(place - 8, 0) : place], min(place, self.source.randrange(4)))
            kinds = [ok(cuda.cuGraphNodeGetType(one), "reading") for one in [*before, node]]
            data = []
            for kind in kinds[:-1]:
                edge = cuda.CUgraphEdgeData()
                if kind == kinds[-1] == cuda.CUgraphNodeType.CU_GRAPH_NODE_TYPE_KERNEL and place % 5 == 0:
                    edge.from_port, edge.type = 1, 1
                data.append(edge)
            if before:
                ok(loading._add_dependencies(graph, before, [node] * len(before), data, len(before)), "ordering")

    def whole(self) -> Any:
        graph = ok(cuda.cuGraphCreate(0), "making")
        nodes = [self.one(graph, number) for number in range(NODES - 40)]
        nodes.insert(30, ok(cuda.cuGraphAddEmptyNode(graph, [], 0), "adding"))
        nodes.insert(99, self.child(graph, NODES - 40, 40))
        nodes.insert(200, self.child(graph, NODES, 0))
        self.order(graph, nodes)
        return graph


def ran(device: Device, made: Any) -> bytes:
    """What the graph writes."""
    device.poison(OUT, GRAIN)
    device.launch(made)
    found = bytearray(GRAIN)
    device.read(OUT, found)
    return bytes(found)


def main() -> None:
    device = Device()
    for at in (X, W, OUT):
        device.pages.map(at, GRAIN)
    device.write(X, random.Random(3).randbytes(1024))
    builder = Builder(device)
    graph = builder.whole()
    found = canonical(described(graph, lambda handles, symbol: builder.symbols[handles[0]]))
    base = program([])
    blocks = [Block(at=at, size=GRAIN if at == OUT else block.size, role=block.role) for at, block in
              zip((X, W, OUT), base.layout.blocks, strict=True)]  # fmt: skip
    layout = base.layout.model_copy(update={"nodes": found[0], "edges": found[1], "blocks": tuple(blocks)})
    kept = decoded(encoded(checked(Program(layout, IMAGES, base.held))))
    assert (kept.layout.nodes, kept.layout.edges) == found

    seen, instantiate = [], cuda.cuGraphInstantiate

    def watched(other: Any, flags: int) -> Any:
        by_symbol = {"fill": digest_of(cubin("fill")), "other": digest_of(cubin("other"))}
        seen.append(canonical(described(other, lambda handles, symbol: by_symbol[symbol])))
        return instantiate(other, flags)

    cuda.cuGraphInstantiate = watched  # the loader gives its graph away nowhere else
    loaded = loading.load(kept, device.context, device.stream)
    assert seen == [found]
    one = ran(device, ok(instantiate(graph, 0), "making executable"))
    assert one == ran(device, loaded.graph) != b"\xff" * GRAIN
    loaded.close()
    counts = Counter(node.kind for node in found[0])
    kernels = [node for node in found[0] if isinstance(node, Kernel)]
    clusters = {(node.cluster, node.cluster_policy, node.cooperative, node.priority) for node in kernels}
    print(len(found[0]), *sorted(counts), len(clusters), any(edge.data for edge in found[1]))


if __name__ == "__main__":
    main()
