"""Resources of a kernel, read from its cubin: the `.nv.info` attributes, section sizes and the SASS."""

from __future__ import annotations

import hashlib
import io
import struct
import subprocess
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from elftools.elf.elffile import ELFFile

from tilewright.compiler import sass
from tilewright.compiler.resources import Resources
from tilewright.compiler.texts import tidy
from tilewright.compiler.tools import need_tool
from tilewright.gpu.specs import KIB, SM_LIMITS, SmLimits

# Attributes of .nv.info that matter here, by their number in the section's records.
_REGCOUNT, _FRAME_SIZE = 0x2F, 0x11
_REQNTID, _MAX_THREADS, _NUM_BARRIERS, _CTA_PER_CLUSTER = 0x10, 0x05, 0x4C, 0x3D
_FORMAT_WITH_SIZE = 4
DISASSEMBLE_S = 60.0

CODE = (".text.", ".nv.constant")
"""Where instructions are, and what they name."""
_RESERVED = ".nv.shared.reserved."
"""Where a cubin has such a section (sm_90 and later), the system's 1 KiB is counted in the kernel's own."""


def _attributes(data: bytes) -> Iterator[tuple[int, bytes]]:
    position = 0
    while position + 4 <= len(data):
        kind, number = data[position], data[position + 1]
        if kind == _FORMAT_WITH_SIZE:
            (size,) = struct.unpack_from("<H", data, position + 2)
            yield number, data[position + 4 : position + 4 + size]
            position += 4 + size
        else:
            yield number, data[position + 2 : position + 4]
            position += 4


def occupancy(registers: int, shared: int, threads: int, limits: SmLimits) -> tuple[int, str]:
    """CTAs that fit on an SM, and what keeps the next one off. The system takes 1 KiB of shared memory for each."""
    warps = -(-threads // 32)
    per_warp = -(-registers * 32 // 256) * 256
    found = {
        "registers": limits.registers // max(per_warp * warps, 1),
        "shared memory": limits.shared_bytes // (shared + KIB),
        "threads": limits.threads // max(warps * 32, 1),
        "CTAs per SM": limits.ctas,
    }
    least = min(found.values())
    return least, " and ".join(name for name, count in found.items() if count == least)


def machine_code(
    cubin: bytes,
    arch: str,
    folder: Path | None = None,
    dynamic_shared: int = 0,
    threads: int = 0,
    matmuls: Iterable[tuple[str, int]] = (),
) -> dict[str, Any]:
    """The SASS of the one kernel in `cubin`, its resources (see there), and the mix of each source line, as a
    `Compilation` names them. `matmuls` are the lines of matmuls. Raises `MissingTool` where nvdisasm is."""
    with tempfile.NamedTemporaryFile(suffix=".cubin", dir=folder) as file:
        file.write(cubin)
        file.flush()
        command = [need_tool("nvdisasm"), "-c", "-gi", file.name]
        text = subprocess.run(command, capture_output=True, text=True, timeout=DISASSEMBLE_S, check=True).stdout
    listed = list(sass.instructions(text))
    held = resources(cubin, listed, arch, dynamic_shared, threads)
    return {"sass": tidy(text), "resources": held, "mix": sass.mix_by_line(listed, matmuls)}


def resources(
    cubin: bytes, listed: list[sass.Instruction], arch: str, dynamic_shared: int = 0, threads: int = 0
) -> Resources:
    """The resources of the one kernel in `cubin`, whose instructions are `listed`; its occupancy if `arch` is known.

    `dynamic_shared` is the shared memory in bytes that a launch asks for beyond what the cubin itself holds, `threads`
    a block's where the cubin does not say how many it needs.
    """
    elf = ELFFile(io.BytesIO(cubin))
    found = {"threads": threads}
    shared = reserved = 0
    code = hashlib.sha256()
    for section in elf.iter_sections():
        if section.name.startswith(CODE):
            code.update(section.data())
        if section.name == ".nv.info":
            for number, value in _attributes(section.data()):
                if number in (_REGCOUNT, _FRAME_SIZE) and len(value) >= 8:
                    name = "registers" if number == _REGCOUNT else "stack_bytes"
                    found[name] = max(found.get(name, 0), struct.unpack("<II", value[:8])[1])
        elif section.name.startswith(".nv.info."):
            for number, value in _attributes(section.data()):
                if number == _REQNTID or (number == _MAX_THREADS and not threads):
                    x, y, z = struct.unpack("<III", value[:12])
                    found["threads"] = x * y * z
                elif number == _CTA_PER_CLUSTER:
                    x, y, z = struct.unpack("<III", value[:12])
                    found["cluster_ctas"] = x * y * z
                elif number == _NUM_BARRIERS:
                    found["barriers"] = value[0]
        elif section.name.startswith(_RESERVED):
            reserved = KIB
        elif section.name.startswith(".nv.shared."):
            shared = max(shared, int(section["sh_size"]))
    shared = max(shared - reserved, 0) + dynamic_shared
    mix: Counter[str] = Counter(one.name for one in listed)
    limits = SM_LIMITS.get(arch)
    ctas, limited_by = None, ""
    if limits is not None:
        ctas, limited_by = occupancy(found.get("registers", 0), shared, found["threads"], limits)
    return Resources(
        registers=found.get("registers", 0),
        spill_bytes=sass.moved(listed, "STL"),
        spill_load_bytes=sass.moved(listed, "LDL"),
        stack_bytes=found.get("stack_bytes", 0),
        shared_bytes=shared,
        threads=found["threads"],
        barriers=found.get("barriers", 0),
        cluster_ctas=found.get("cluster_ctas", 1),
        setmaxnreg=sass.register_counts(listed),
        ctas_per_sm=ctas,
        limited_by=limited_by,
        max_threads_per_sm=limits.threads if limits else None,
        instructions=len(listed),
        tensor_core={name: mix[name] for name in sass.TENSOR_CORE if mix[name]},
        tma={name: mix[name] for name in sass.TMA if mix[name]},
        waited_loads=sum(one.name == "SYNCS" and one.modifiers[:2] == ("CCTL", "IV") for one in listed),
        async_copies=mix["LDGSTS"],
        plain_loads=mix["LDG"],
        plain_stores=mix["STG"],
        local_memory=mix["LDL"] + mix["STL"],
        code=code.hexdigest()[:16],
    )
