"""A captured CUDA graph as nodes of a program."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import Any

from cuda.bindings import driver as cuda

from tilewright.gpu.driver import ok
from tilewright.programs.model import Copy, Edge, Kernel, Memset
from tilewright.programs.order import AnyNode, Graph
from tilewright.text import cut

ImageOf = Callable[[Sequence[int], str], str]
"""The hash of a kernel's image, by the handles that stand for it and its symbol. Raises `NotCapturable`."""
_Kind = cuda.CUgraphNodeType
_Attribute = cuda.CUkernelNodeAttrID
_Function = cuda.CUfunction_attribute
_BUFFER_POINTER, _END = 1, 0
"""Keys of a launch's `extra`: they come in any order."""
_get_edges = getattr(cuda, "cuGraphGetEdges_v2", cuda.cuGraphGetEdges)  # so named before 13
_OTHERS = {
    _Kind.CU_GRAPH_NODE_TYPE_HOST: "a function on the host",
    _Kind.CU_GRAPH_NODE_TYPE_WAIT_EVENT: "a wait for an event of somebody else",
    _Kind.CU_GRAPH_NODE_TYPE_EVENT_RECORD: "an event",
    _Kind.CU_GRAPH_NODE_TYPE_EXT_SEMAS_SIGNAL: "a semaphore",
    _Kind.CU_GRAPH_NODE_TYPE_EXT_SEMAS_WAIT: "a semaphore",
    _Kind.CU_GRAPH_NODE_TYPE_MEM_ALLOC: "an allocation by the graph itself",
    _Kind.CU_GRAPH_NODE_TYPE_MEM_FREE: "an allocation by the graph itself",
    _Kind.CU_GRAPH_NODE_TYPE_BATCH_MEM_OP: "writes and waits on memory by the stream",
    _Kind.CU_GRAPH_NODE_TYPE_CONDITIONAL: "a conditional node",
}
_TAKEN = frozenset(
    f"CU_LAUNCH_ATTRIBUTE_{name}"
    for name in (
        "IGNORE", "COOPERATIVE", "CLUSTER_DIMENSION", "CLUSTER_SCHEDULING_POLICY_PREFERENCE", "PRIORITY",
        "PREFERRED_SHARED_MEMORY_CARVEOUT",
        # How a launch waits for others is in the edges of the graph, and how the host waits is no matter here.
        "PROGRAMMATIC_STREAM_SERIALIZATION", "SYNCHRONIZATION_POLICY", "MEM_SYNC_DOMAIN_MAP",
    )
)  # fmt: skip
"""Attributes of a launch that a program has, or that change nothing in it."""


class NotCapturable(Exception):
    """What a call does cannot be a device program, and why: its case is `in-process`."""


def described(graph: Any, image_of: ImageOf) -> Graph:
    """The nodes and edges of a graph; a graph in a graph is part of it, between two nodes that do nothing. Raises
    `NotCapturable`, `DriverError`."""
    nodes: list[AnyNode | None] = []
    edges: list[Edge] = []
    _add(graph, nodes, edges, image_of)
    return Graph(nodes, edges)


def _add(graph: Any, nodes: list[AnyNode | None], edges: list[Edge], image_of: ImageOf) -> None:
    handles = _listed(cuda.cuGraphGetNodes, graph)
    first, last = dict[int, int](), dict[int, int]()  # places where a handle's work begins and ends
    for handle in handles:
        kind = ok(cuda.cuGraphNodeGetType(handle), "reading a node")
        begin = len(nodes)
        if kind == _Kind.CU_GRAPH_NODE_TYPE_GRAPH:
            nodes.append(None)
            _add(ok(cuda.cuGraphChildGraphNodeGetGraph(handle), "reading a node"), nodes, edges, image_of)
            inner = range(begin + 1, len(nodes))
            nodes.append(None)
            starts = set(inner) - {edge.after for edge in edges}
            ends = set(inner) - {edge.before for edge in edges}
            edges += [Edge(before=begin, after=number) for number in sorted(starts)]
            edges += [Edge(before=number, after=len(nodes) - 1) for number in sorted(ends)]
            if not inner:
                edges.append(Edge(before=begin, after=begin + 1))
        else:
            nodes.append(_node(handle, kind, image_of))
        first[int(handle)], last[int(handle)] = begin, len(nodes) - 1
    for before, after, data in _edges(graph):
        edges.append(
            Edge(
                before=last[int(before)],
                after=first[int(after)],
                from_port=data.from_port,
                to_port=data.to_port,
                data=int(data.type),
            )
        )


def _node(handle: Any, kind: Any, image_of: ImageOf) -> AnyNode | None:
    if kind == _Kind.CU_GRAPH_NODE_TYPE_EMPTY:
        return None
    if kind == _Kind.CU_GRAPH_NODE_TYPE_KERNEL:
        return _kernel(handle, image_of)
    if kind == _Kind.CU_GRAPH_NODE_TYPE_MEMSET:
        params = ok(cuda.cuGraphMemsetNodeGetParams(handle), "reading a memset")
        element = int(params.elementSize)
        return Memset(
            at=int(params.dst),
            value=int(params.value) & (1 << 8 * element) - 1,
            element=1 if element == 1 else 2 if element == 2 else 4,
            width=int(params.width),
            height=int(params.height),
            pitch=int(params.pitch),
        )
    if kind == _Kind.CU_GRAPH_NODE_TYPE_MEMCPY:
        return _copy(ok(cuda.cuGraphMemcpyNodeGetParams(handle), "reading a copy"))
    raise NotCapturable(f"it launches {_OTHERS.get(kind, f'a node of kind {int(kind)}')}")


def _copy(box: Any) -> Copy:
    on_gpu = (cuda.CUmemorytype.CU_MEMORYTYPE_DEVICE, cuda.CUmemorytype.CU_MEMORYTYPE_UNIFIED)
    if box.srcMemoryType not in on_gpu or box.dstMemoryType not in on_gpu:
        raise NotCapturable("it copies between the host and the GPU")
    source = int(box.srcDevice) + box.srcXInBytes + box.srcPitch * (box.srcY + box.srcHeight * box.srcZ)
    to = int(box.dstDevice) + box.dstXInBytes + box.dstPitch * (box.dstY + box.dstHeight * box.dstZ)
    return Copy(
        to=to,
        source=source,
        width=int(box.WidthInBytes),
        height=int(box.Height),
        depth=int(box.Depth),
        to_pitch=int(box.dstPitch),
        source_pitch=int(box.srcPitch),
        to_height=int(box.dstHeight),
        source_height=int(box.srcHeight),
    )


def _kernel(handle: Any, image_of: ImageOf) -> Kernel:
    params = ok(cuda.cuGraphKernelNodeGetParams(handle), "reading a kernel")
    function, handles = params.func, [one for one in (int(params.func), int(params.kern)) if one]
    if not int(function):
        function = ok(cuda.cuKernelGetFunction(params.kern), "reading a kernel")
    symbol = ok(cuda.cuFuncGetName(function), "reading a kernel's name").decode()
    values = _parameters(params, function, symbol)
    numbers = {name: _attribute(handle, name) for name in _Attribute.__members__}
    for name, value in numbers.items():
        if name not in _TAKEN and value is not None and any(bytes(value)):
            short = name.removeprefix("CU_LAUNCH_ATTRIBUTE_").replace("_", " ").lower()
            raise NotCapturable(f"kernel {cut(symbol, 80)} is launched with the attribute {short}")
    cluster = _attribute_value(handle, "CLUSTER_DIMENSION")
    policy = _attribute_value(handle, "CLUSTER_SCHEDULING_POLICY_PREFERENCE")
    cooperative = _attribute_value(handle, "COOPERATIVE")
    priority = _attribute_value(handle, "PRIORITY")
    which = _Function.CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT
    return Kernel(
        image=image_of(handles, symbol),
        symbol=symbol,
        grid=(params.gridDimX, params.gridDimY, params.gridDimZ),
        block=(params.blockDimX, params.blockDimY, params.blockDimZ),
        shared=params.sharedMemBytes,
        parameters=values,
        cluster=(cluster.clusterDim.x, cluster.clusterDim.y, cluster.clusterDim.z) if cluster else (0, 0, 0),
        cluster_policy=int(policy.clusterSchedulingPolicyPreference) if policy else 0,
        cooperative=bool(cooperative.cooperative) if cooperative else False,
        priority=int(priority.priority) if priority else 0,
        carve_out=int(ok(cuda.cuFuncGetAttribute(which, function), "reading a kernel")),
    )


def _parameters(params: Any, function: Any, symbol: str) -> tuple[bytes, ...]:
    pointers, extra = int(params.kernelParams or 0), int(params.extra or 0)
    buffer = _buffer(extra) if extra and not pointers else 0
    found: list[bytes] = []
    while True:
        error, offset, size = cuda.cuFuncGetParamInfo(function, len(found))
        if int(error):
            break
        if not (buffer or pointers):
            raise NotCapturable(f"the parameters of kernel {cut(symbol, 80)} cannot be read")
        at = buffer + offset if buffer else ctypes.c_uint64.from_address(pointers + 8 * len(found)).value
        found.append(ctypes.string_at(at, size))
    return tuple(found)


def _buffer(extra: int) -> int:
    """The address of a launch's parameters in its `extra`: keys and values until `_END`."""
    while (key := ctypes.c_uint64.from_address(extra).value) != _END:
        if key == _BUFFER_POINTER:
            return ctypes.c_uint64.from_address(extra + 8).value
        extra += 16
    return 0


def _attribute(handle: Any, name: str) -> Any:
    """A launch attribute's bytes; None where this driver does not know it, or the node has none."""
    error, value = cuda.cuGraphKernelNodeGetAttribute(handle, _Attribute.__members__[name])
    return None if int(error) else ctypes.string_at(value.getPtr(), 64)


def _attribute_value(handle: Any, name: str) -> Any:
    error, value = cuda.cuGraphKernelNodeGetAttribute(handle, _Attribute.__members__[f"CU_LAUNCH_ATTRIBUTE_{name}"])
    return None if int(error) else value


def _listed(function: Any, graph: Any) -> list[Any]:
    _, count = ok(function(graph), "reading a graph")
    if not count:
        return []
    found, _ = ok(function(graph, count), "reading a graph")
    return list(found)


def _edges(graph: Any) -> list[tuple[Any, Any, Any]]:
    *_, count = ok(_get_edges(graph), "reading a graph")
    if not count:
        return []
    before, after, data, _ = ok(_get_edges(graph, count), "reading a graph")
    return [*zip(before, after, data, strict=True)]
