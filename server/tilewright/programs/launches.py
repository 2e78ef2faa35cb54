"""What a program launches, beside what an ordinary call of its entry point launched, in no order: streams run side by
side.

Compared are the symbols and grids of kernels, and the bytes of memsets and copies. A tile kernel (cuTile's) is launched
with blocks of one thread. If it needs clusters, its grid is one of clusters, and CUPTI records a grid of their blocks.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from tilewright.programs.images import clusters
from tilewright.programs.model import Kernel, Memset, Program
from tilewright.text import cut
from tilewright.wire.launches import CopyLaunch, KernelLaunch, Launch, MemsetLaunch


def launches_of(program: Program) -> list[Launch]:
    """What a replay of a program launches, as a worker would record it. Raises `ProgramError` for an image that cannot
    be read."""
    sizes = {key: clusters(image) for key, image in program.images.items()}
    launches = list[Launch]()
    for node in program.layout.nodes:
        if isinstance(node, Kernel):
            cluster = sizes[node.image].get(node.symbol, (1, 1, 1)) if node.block == (1, 1, 1) else (1, 1, 1)
            x, y, z = (count * each for count, each in zip(node.grid, cluster, strict=True))
            launches.append(KernelLaunch(symbol=node.symbol, grid=(x, y, z)))
        elif isinstance(node, Memset):
            launches.append(MemsetLaunch(size=node.width * node.height * node.element))
        else:
            launches.append(CopyLaunch(size=node.width * node.height * node.depth))
    return launches


def launch_differences(program: Program, recorded: Sequence[Launch], most: int = 4) -> list[str]:
    """In words, what the program and an ordinary call launch differently often. At most `most` lines, then how many
    more. Raises `ProgramError` for an image that cannot be read."""
    ours, theirs = _counted(launches_of(program)), _counted(recorded)
    found = [
        f"{_shown(launch)}: {ours[launch]} in the program, {theirs[launch]} in an ordinary call"
        for launch in sorted({*ours, *theirs}, key=repr)
        if ours[launch] != theirs[launch]
    ]
    return found if len(found) <= most else [*found[:most], f"and {len(found) - most} more differences"]


def _counted(launches: Iterable[Launch]) -> Counter[Launch]:
    """Launches, without copies and memsets of no bytes."""
    return Counter(launch for launch in launches if isinstance(launch, KernelLaunch) or launch.size)


def _shown(launch: Launch) -> str:
    match launch:
        case KernelLaunch():
            return f"kernel {cut(launch.symbol, 120)} with grid {'x'.join(map(str, launch.grid))}"
        case MemsetLaunch():
            return f"a memset of {launch.size} bytes"
        case CopyLaunch():
            return f"a copy of {launch.size} bytes {launch.way}"
