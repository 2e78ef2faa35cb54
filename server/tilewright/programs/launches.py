"""What a program launches, beside what an ordinary call of its entry point launched.

A program has all that a captured call does; a record of CUPTI has less. Compared is what both have, without an order,
since streams run side by side:

- A kernel: symbol, grid, block and dynamic shared memory. The symbol is the mangled one. Clusters and attributes are
  in a record in another way, or not at all. A tile kernel (cuTile's) is launched with blocks of one thread and no
  shared memory, and runs with what its image asks for, which is what a record may have: there the symbol and the grid
  are compared, and the block has to be either of the two. If its image asks for clusters, it is launched with a grid
  of clusters, and a record has all their blocks (seen with CUDA 13.0 on an H100).
- A memset: its bytes in all, and the first byte that it writes. A record has neither its rows nor the size of its
  elements, and a driver may take two bytes or four at a time where one was asked for.
- A copy: its bytes in all, and that it stays on the GPU.

A copy or memset of no bytes does not count. A driver may run a memset as a kernel of its own. Outside of graphs CUPTI
still records a memset. In a graph it need not (CUPTI's release notes of CUDA 11.0), so that a memset which is in the
program alone stands for one kernel that a graph launched and whose symbol the program does not have.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence

from tilewright.programs.images import Three, required_sizes
from tilewright.programs.model import Kernel, Memset, Program
from tilewright.text import cut
from tilewright.wire.launches import CopyLaunch, KernelLaunch, Launch, MemsetLaunch

_ONE_THREAD: Three = (1, 1, 1)


def launches_of(program: Program) -> list[Launch]:
    """What a replay of a program launches, as a worker would record it. Raises `ProgramError` for an image that cannot
    be read."""
    return _read(program)[0]


def tile_kernels(program: Program) -> dict[str, set[Three]]:
    """The sizes of a block, as launched and as it runs, by the symbols of those kernels that a program launches with
    blocks of one thread although they run with more. Raises `ProgramError` for an image that cannot be read."""
    return _read(program)[1]


def _read(program: Program) -> tuple[list[Launch], dict[str, set[Three]]]:
    """Both: an image can have tens of megabytes, and is read once."""
    sizes = {key: required_sizes(image) for key, image in program.images.items()}
    launches, tiles = list[Launch](), dict[str, set[Three]]()
    for node in program.layout.nodes:
        match node:
            case Kernel():
                grid = node.grid
                asked = sizes[node.image].get(node.symbol) if node.block == _ONE_THREAD else None
                if asked and asked.threads != _ONE_THREAD:
                    tiles.setdefault(node.symbol, {_ONE_THREAD}).add(asked.threads)
                    x, y, z = (count * each for count, each in zip(grid, asked.cluster, strict=True))
                    grid = x, y, z
                launches.append(KernelLaunch(symbol=node.symbol, grid=grid, block=node.block, shared=node.shared))
            case Memset():
                launches.append(MemsetLaunch(value=node.value, size=node.width * node.height * node.element))
            case _:
                launches.append(CopyLaunch(size=node.width * node.height * node.depth))
    return launches, tiles


def launch_differences(program: Program, recorded: Sequence[Launch], most: int = 4) -> list[str]:
    """In words, what an ordinary call launched that the program does not, and the other way round; empty where it is
    the same. At most `most` lines, then how many more. Raises `ProgramError` for an image that cannot be read."""
    launches, tiles = _read(program)
    ours, theirs = _counted(launches, tiles), _counted(recorded, tiles)
    missing, extra = ours - theirs, theirs - ours
    _pair_memsets(missing, extra, ours, recorded, tiles)
    found = [
        f"{_named(one)}: {ours[one]} in the program, {theirs[one]} in an ordinary call"
        for one in _ordered({*missing, *extra})
        if ours[one] and theirs[one]
    ]
    alone = [
        _of_symbols(one for one in left.elements() if not (ours[one] and theirs[one])) for left in (missing, extra)
    ]
    for symbol in sorted({*alone[0], *alone[1]}):
        found += _of_pairs(alone[0].get(symbol, []), alone[1].get(symbol, []))
    return found if len(found) <= most else [*found[:most], f"and {len(found) - most} more differences"]


def _counted(launches: Iterable[Launch], tiles: Mapping[str, set[Three]]) -> Counter[Launch]:
    found = (_compared(one, tiles) for one in launches)
    return Counter(one for one in found if one is not None)


def _compared(launch: Launch, tiles: Mapping[str, set[Three]]) -> Launch | None:
    """A launch with no more than what is compared; None for one that does not count."""
    match launch:
        case KernelLaunch():
            if launch.block in tiles.get(launch.symbol, ()):
                return launch.model_copy(update={"block": _ONE_THREAD, "shared": 0, "in_graph": False})
            return launch.model_copy(update={"in_graph": False})
        case MemsetLaunch():
            return launch.model_copy(update={"value": launch.value & 0xFF}) if launch.size else None
        case CopyLaunch():
            return launch if launch.size else None


def _pair_memsets(
    missing: Counter[Launch],
    extra: Counter[Launch],
    ours: Counter[Launch],
    recorded: Sequence[Launch],
    tiles: Mapping[str, set[Three]],
) -> None:
    """Take memsets that are missing out, each with a kernel that stands for it."""
    symbols = {one.symbol for one in ours if isinstance(one, KernelLaunch)}
    in_graphs = _counted((one for one in recorded if isinstance(one, KernelLaunch) and one.in_graph), tiles)
    candidates = _ordered((extra & in_graphs).elements())
    strange = [one for one in candidates if isinstance(one, KernelLaunch) and one.symbol not in symbols]
    memsets = [one for one in _ordered(missing.elements()) if isinstance(one, MemsetLaunch)]
    for memset, kernel in zip(memsets, strange, strict=False):
        missing[memset] -= 1
        extra[kernel] -= 1
    for left in (missing, extra):
        left += Counter()  # without what is there no more


def _of_symbols(launches: Iterable[Launch]) -> dict[str, list[Launch]]:
    """Launches by the symbol of their kernel, or by their kind."""
    found = defaultdict(list)
    for one in _ordered(launches):
        found[one.symbol if isinstance(one, KernelLaunch) else f"{one.kind} {one.size}"].append(one)
    return found


def _of_pairs(missing: Sequence[Launch], extra: Sequence[Launch]) -> list[str]:
    """In words, how launches of one kernel differ; equal lines once, with how often they hold."""
    lines = [_pair(one, other) for one, other in zip(missing, extra, strict=False)]
    lines += [f"the program launches {_full(one)}, an ordinary call does not" for one in missing[len(extra) :]]
    lines += [f"an ordinary call launches {_full(one)}, the program does not" for one in extra[len(missing) :]]
    return [line if times == 1 else f"{line} ({times} times)" for line, times in Counter(lines).items()]


def _pair(one: Launch, other: Launch) -> str:
    if not (isinstance(one, KernelLaunch) and isinstance(other, KernelLaunch)):
        return f"{_full(one)} in the program, {_full(other)} in an ordinary call"
    names = ("grid", "block", "shared")
    parts = [
        f"{name} {_shown(a)} in the program, {_shown(b)} in an ordinary call"
        for name in names
        if (a := getattr(one, name)) != (b := getattr(other, name))
    ]
    return f"{_named(one)}: {'; '.join(parts)}"


def _named(launch: Launch) -> str:
    match launch:
        case KernelLaunch():
            return f"kernel {cut(launch.symbol, 120)}"
        case MemsetLaunch():
            return f"a memset of {launch.size} bytes to {launch.value:#x}"
        case CopyLaunch():
            return f"a copy of {launch.size} bytes {launch.way}"


def _full(launch: Launch) -> str:
    if not isinstance(launch, KernelLaunch):
        return _named(launch)
    threads = f"{_shown(launch.grid)} blocks of {math.prod(launch.block)} threads"
    return f"{_named(launch)} ({threads})"


def _ordered(launches: Iterable[Launch]) -> list[Launch]:
    return sorted(launches, key=lambda one: one.model_dump_json())


def _shown(value: object) -> str:
    return "x".join(map(str, value)) if isinstance(value, tuple) else str(value)
