"""A device program for people."""

from __future__ import annotations

from collections import defaultdict

from tilewright.programs.identity import identity
from tilewright.programs.model import Block, Copy, Kernel, Memset, Program, Tensor
from tilewright.text import printable


def shown(program: Program) -> str:
    """What it launches, in which order, on which memory."""
    layout = program.layout
    held = sum(block.size for block in layout.blocks if block.role == "held")
    images = sum(map(len, program.images.values()))
    waits: dict[int, list[int]] = defaultdict(list)
    for edge in layout.edges:
        waits[edge.after].append(edge.before)
    lines = [
        f"device program {identity(program)[:12]} for {layout.arch}",
        f"captured from {printable(program.label)}" if program.label else "",
        f"{_count(len(layout.nodes), 'node')}, {_count(len(layout.edges), 'edge')}, "
        f"{_count(len(program.images), 'image')} of {_bytes(images)} in all",
        f"{_count(len(layout.blocks), 'block')} of memory, {_bytes(sum(block.size for block in layout.blocks))} in all"
        + (f", of it {_bytes(held)} held from before the call" if held else ""),
        "",
    ]
    for number, node in enumerate(layout.nodes):
        after = f"  after {', '.join(map(str, sorted(waits[number])))}" if waits[number] else ""
        lines.append(f"{number:5}  {_node(node)}{after}")
    lines += [
        "",
        *(_tensor("input", one) for one in layout.inputs),
        *(_tensor("output", one) for one in layout.outputs),
    ]
    lines += [_block(block) for block in layout.blocks if block.role != "input"]
    return "\n".join(line for number, line in enumerate(lines) if line or number > 1)


def _node(node: Kernel | Memset | Copy) -> str:
    if isinstance(node, Memset):
        return f"memset  {node.width * node.height} x {node.element} bytes at {node.at:#x} to {node.value:#x}"
    if isinstance(node, Copy):
        size = _bytes(node.width * node.height * node.depth)
        return f"copy    {size} from {node.source:#x} to {node.to:#x}"
    extra = [f"shared {node.shared}"] if node.shared else []
    if any(node.cluster):
        extra.append(f"cluster {_sizes(node.cluster)}")
    if node.cooperative:
        extra.append("cooperative")
    if node.priority:
        extra.append(f"priority {node.priority}")
    sizes = [f"grid {_sizes(node.grid)}", f"block {_sizes(node.block)}", *extra]
    return f"kernel  {printable(node.symbol)}  {', '.join(sizes)}  image {node.image[:12]}"


def _tensor(what: str, tensor: Tensor) -> str:
    shape = ", ".join(map(str, tensor.spec.shape))
    return f"{what:7} {printable(tensor.name)}: {tensor.spec.dtype}[{shape}] at {tensor.at:#x}"


def _block(block: Block) -> str:
    return f"{block.role:7} {_bytes(block.size)} at {block.at:#x}"


def _sizes(sizes: tuple[int, int, int]) -> str:
    return "x".join(map(str, sizes))


def _bytes(count: int) -> str:
    for unit, size in (("GiB", 30), ("MiB", 20), ("KiB", 10)):
        if count >= 1 << size:
            return f"{count / (1 << size):.1f} {unit}"
    return f"{count} bytes"


def _count(count: int, what: str) -> str:
    return f"{count} {what}{'' if count == 1 else 's'}"
