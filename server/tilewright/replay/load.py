"""A device program in the driver: its images loaded, its nodes an executable graph."""

from __future__ import annotations

import ctypes
import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from cuda.bindings import driver as cuda

from tilewright.gpu.driver import Context, ok
from tilewright.programs.images import variables
from tilewright.programs.model import Copy, Edge, Kernel, Memset, Program, ProgramError

LARGE_SHARED = 48 << 10
"""Bytes of dynamic shared memory beyond which a kernel has to be told that it may have them."""
PORTABLE_CLUSTER = 8
IMAGES = 32
"""Whose variables are known, from round to round."""
_Function = cuda.CUfunction_attribute
_Launch = cuda.CUkernelNodeAttrID
_add_dependencies = getattr(cuda, "cuGraphAddDependencies_v2", cuda.cuGraphAddDependencies)  # so named before 13


@dataclass
class Loaded:
    """An executable graph and the libraries that hold its kernels; `close` when the GPU is done with it."""

    graph: Any
    libraries: list[Any]
    functions: dict[tuple[str, str], Any]
    """By image and symbol."""
    variables: list[tuple[int, int]]
    """Address and bytes of what its images have in global memory."""

    def close(self) -> None:
        ok(cuda.cuGraphExecDestroy(self.graph), "freeing a graph")
        for library in self.libraries:
            ok(cuda.cuLibraryUnload(library), "unloading an image")


def load(program: Program, context: Context, stream: Any) -> Loaded:
    """Load the images anew and build the graph, its nodes in the program's order. Raises `ProgramError` where the
    driver's parameters of a kernel are not the program's, `DriverError` where the driver refuses."""
    libraries: dict[str, Any] = {}
    kept: list[tuple[int, int]] = []
    functions: dict[tuple[str, str], Any] = {}
    graph = ok(cuda.cuGraphCreate(0), "making a graph")
    try:
        for key, image in program.images.items():
            libraries[key] = ok(cuda.cuLibraryLoadData(image, [], [], 0, [], [], 0), f"loading image {key[:12]}")
            kept += _variables(libraries[key], image)
        before: dict[int, list[Edge]] = {}
        for edge in program.layout.edges:
            before.setdefault(edge.after, []).append(edge)
        handles: list[Any] = []
        for number, node in enumerate(program.layout.nodes):
            if isinstance(node, Kernel):
                name = node.image, node.symbol
                if name not in functions:
                    functions[name] = _function(libraries[node.image], node)
                handle = _add_kernel(graph, node, functions[name])
            else:
                handle = _add_memory(graph, node, context)
            if edges := before.get(number):
                _add_edges(graph, handle, [(handles[edge.before], edge) for edge in edges])
            handles.append(handle)
        made = ok(cuda.cuGraphInstantiate(graph, 0), "making a graph executable")
        try:
            ok(cuda.cuGraphUpload(made, stream), "uploading a graph")
        except BaseException:
            cuda.cuGraphExecDestroy(made)
            raise
    except BaseException:
        for library in libraries.values():
            cuda.cuLibraryUnload(library)
        raise
    finally:
        cuda.cuGraphDestroy(graph)
    return Loaded(made, [*libraries.values()], functions, kept)


_names = functools.lru_cache(maxsize=IMAGES)(lambda image: [name.encode() for name in variables(image)])


def _variables(library: Any, image: bytes) -> list[tuple[int, int]]:
    """Where an image's variables lie, as far as the driver finds them."""
    found = (cuda.cuLibraryGetGlobal(library, name) for name in _names(image))
    return [(int(at), int(size)) for error, at, size in found if not int(error)]


def joined(areas: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """The same memory as areas, of address and bytes, that neither overlap nor touch."""
    found: list[list[int]] = []
    for at, size in sorted(areas):
        if found and at <= found[-1][1]:
            found[-1][1] = max(found[-1][1], at + size)
        else:
            found.append([at, at + size])
    return [(at, end - at) for at, end in found]


def _function(library: Any, node: Kernel) -> Any:
    kernel = ok(cuda.cuLibraryGetKernel(library, node.symbol.encode()), f"looking for kernel {node.symbol}")
    function = ok(cuda.cuKernelGetFunction(kernel), f"looking for kernel {node.symbol}")
    sizes: list[int] = []
    while True:
        error, _, size = cuda.cuFuncGetParamInfo(function, len(sizes))
        if int(error):
            break
        sizes.append(int(size))
    if sizes != [len(value) for value in node.parameters]:
        raise ProgramError(f"kernel {node.symbol} has other parameters than the program gives it")
    return function


def launch(node: Kernel | Memset | Copy, functions: dict[tuple[str, str], Any], context: Context, stream: Any) -> None:
    """Launch a node by itself, outside of the graph that was loaded with these `functions`."""
    doing = "launching a node by itself"
    if not isinstance(node, Kernel):  # in a graph of its own, which lasts as long as the process
        graph = ok(cuda.cuGraphCreate(0), doing)
        _add_memory(graph, node, context)
        ok(cuda.cuGraphLaunch(ok(cuda.cuGraphInstantiate(graph, 0), doing), stream), doing)
        return
    config = cuda.CUlaunchConfig()
    config.gridDimX, config.gridDimY, config.gridDimZ = node.grid
    config.blockDimX, config.blockDimY, config.blockDimZ = node.block
    config.sharedMemBytes, config.hStream = node.shared, stream
    given = []
    for which, value in _attributes(node):
        attribute = cuda.CUlaunchAttribute()
        attribute.id, attribute.value = which, value
        given.append(attribute)
    config.attrs, config.numAttrs = given, len(given)
    function = functions[node.image, node.symbol]
    _prepare(function, node, doing)
    _, places = held = _parameters(node)
    ok(cuda.cuLaunchKernelEx(config, function, ctypes.addressof(places), 0), doing)
    del held  # until here the driver read the values


def _parameters(node: Kernel) -> tuple[list[Any], Any]:
    """The values of a kernel's parameters, and where they lie."""
    values = [ctypes.create_string_buffer(value, max(len(value), 1)) for value in node.parameters]
    return values, (ctypes.c_void_p * max(len(values), 1))(*map(ctypes.addressof, values))


def _attributes(node: Kernel) -> list[tuple[Any, Any]]:
    """What a launch says beside its grid."""
    found: list[tuple[Any, Any]] = []

    def value(which: Any) -> Any:
        found.append((which, cuda.CUkernelNodeAttrValue()))
        return found[-1][1]

    if any(node.cluster):
        size = value(_Launch.CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION).clusterDim
        size.x, size.y, size.z = node.cluster
    if node.cluster_policy:
        placed = value(_Launch.CU_LAUNCH_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE)
        placed.clusterSchedulingPolicyPreference = cuda.CUclusterSchedulingPolicy(node.cluster_policy)
    if node.cooperative:
        value(_Launch.CU_LAUNCH_ATTRIBUTE_COOPERATIVE).cooperative = 1
    if node.priority:
        value(_Launch.CU_LAUNCH_ATTRIBUTE_PRIORITY).priority = node.priority
    return found


def _prepare(function: Any, node: Kernel, doing: str) -> None:
    """Set what the function needs for this launch, which another node may launch otherwise."""
    if node.shared > LARGE_SHARED:
        which = _Function.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
        ok(cuda.cuFuncSetAttribute(function, which, node.shared), doing)
    which = _Function.CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT
    ok(cuda.cuFuncSetAttribute(function, which, node.carve_out), doing)
    if math.prod(node.cluster) > PORTABLE_CLUSTER:
        ok(cuda.cuFuncSetAttribute(function, _Function.CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED, 1), doing)


def _add_kernel(graph: Any, node: Kernel, function: Any) -> Any:
    doing = f"adding kernel {node.symbol}"
    _prepare(function, node, doing)
    params = cuda.CUDA_KERNEL_NODE_PARAMS()
    params.func = function
    params.gridDimX, params.gridDimY, params.gridDimZ = node.grid
    params.blockDimX, params.blockDimY, params.blockDimZ = node.block
    params.sharedMemBytes = node.shared
    _, places = held = _parameters(node)
    params.kernelParams = ctypes.addressof(places)
    handle = ok(cuda.cuGraphAddKernelNode(graph, [], 0, params), doing)
    del held  # until here the driver read the values
    for which, value in _attributes(node):
        ok(cuda.cuGraphKernelNodeSetAttribute(handle, which, value), doing)
    return handle


def _add_memory(graph: Any, node: Memset | Copy, context: Context) -> Any:
    if isinstance(node, Memset):
        params = cuda.CUDA_MEMSET_NODE_PARAMS()
        params.dst, params.pitch, params.value = cuda.CUdeviceptr(node.at), node.pitch, node.value
        params.elementSize, params.width, params.height = node.element, node.width, node.height
        return ok(cuda.cuGraphAddMemsetNode(graph, [], 0, params, context.handle), "adding a memset")
    box = cuda.CUDA_MEMCPY3D()
    box.srcMemoryType = box.dstMemoryType = cuda.CUmemorytype.CU_MEMORYTYPE_DEVICE
    box.srcDevice, box.dstDevice = cuda.CUdeviceptr(node.source), cuda.CUdeviceptr(node.to)
    box.srcPitch, box.dstPitch = node.source_pitch, node.to_pitch
    box.srcHeight, box.dstHeight = node.source_height, node.to_height
    box.WidthInBytes, box.Height, box.Depth = node.width, node.height, node.depth
    return ok(cuda.cuGraphAddMemcpyNode(graph, [], 0, box, context.handle), "adding a copy")


def _add_edges(graph: Any, handle: Any, edges: list[tuple[Any, Edge]]) -> None:
    data = []
    for _, edge in edges:
        one = cuda.CUgraphEdgeData()
        one.from_port, one.to_port, one.type = edge.from_port, edge.to_port, edge.data
        data.append(one)
    sources = [source for source, _ in edges]
    ok(_add_dependencies(graph, sources, [handle] * len(sources), data, len(sources)), "adding an order")
