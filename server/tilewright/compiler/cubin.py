"""Resources of a kernel, read from its cubin: the `.nv.info` attributes, section sizes and the SASS."""

from __future__ import annotations

import io
import re
import struct
import subprocess
import tempfile
from collections import Counter
from collections.abc import Iterator

from elftools.elf.elffile import ELFFile

from tilewright.compiler.resources import Resources
from tilewright.compiler.tools import MissingTool, find_nvdisasm
from tilewright.gpu.specs import KIB, SM_LIMITS, SmLimits

# Attributes of .nv.info that matter here, by their number in the section's records.
_REGCOUNT, _FRAME_SIZE = 0x2F, 0x11
_REQNTID, _MAX_THREADS, _NUM_BARRIERS, _CTA_PER_CLUSTER = 0x10, 0x05, 0x4C, 0x3D
_FORMAT_WITH_SIZE = 4

_MNEMONIC = re.compile(
    r"^\s+/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P[T0-9]+\s+)?([A-Z][A-Z0-9_]*)((?:\.[A-Za-z0-9_]+)*)", re.MULTILINE
)

TENSOR_CORE = ("HGMMA", "QGMMA", "IGMMA", "UTCHMMA", "UTCQMMA", "UTCOMMA", "UTCIMMA", "HMMA", "IMMA", "QMMA", "DMMA")
TMA = ("UTMALDG", "UTMASTG", "UTMAREDG", "UBLKCP")
SPILL = ("LDL", "STL")


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


def _occupancy(registers: int, shared: int, threads: int, limits: SmLimits) -> tuple[int, str]:
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


def disassemble(cubin: bytes, timeout_s: float = 60.0) -> str:
    """The SASS of a cubin. Raises `MissingTool` where nvdisasm is."""
    tool = find_nvdisasm()
    if tool is None:
        raise MissingTool("nvdisasm is not there; mend it with: pip install nvidia-cuda-nvdisasm")
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        done = subprocess.run([tool, "-c", file.name], capture_output=True, text=True, timeout=timeout_s, check=True)
    return done.stdout


def resources(cubin: bytes, arch: str) -> Resources:
    """The resources of the one kernel in `cubin`, and how many of its CTAs fit on an SM of `arch`, if that is known."""
    elf = ELFFile(io.BytesIO(cubin))
    found: dict[str, int] = {}
    shared = 0
    for section in elf.iter_sections():
        if section.name == ".nv.info":
            for number, value in _attributes(section.data()):
                if number in (_REGCOUNT, _FRAME_SIZE) and len(value) >= 8:
                    name = "registers" if number == _REGCOUNT else "spill_bytes"
                    found[name] = max(found.get(name, 0), struct.unpack("<II", value[:8])[1])
        elif section.name.startswith(".nv.info."):
            for number, value in _attributes(section.data()):
                if number in (_REQNTID, _MAX_THREADS):
                    x, y, z = struct.unpack("<III", value[:12])
                    found["threads"] = x * y * z
                elif number == _CTA_PER_CLUSTER:
                    x, y, z = struct.unpack("<III", value[:12])
                    found["cluster_ctas"] = x * y * z
                elif number == _NUM_BARRIERS:
                    found["barriers"] = value[0]
        elif section.name.startswith(".nv.shared."):
            shared = max(shared, int(section["sh_size"]))
    mix: Counter[str] = Counter(match[1] for match in _MNEMONIC.finditer(disassemble(cubin)))
    limits = SM_LIMITS.get(arch)
    ctas, limited_by = None, ""
    if limits is not None:
        ctas, limited_by = _occupancy(found.get("registers", 0), shared, found.get("threads", 0), limits)
    return Resources(
        registers=found.get("registers", 0),
        spill_bytes=found.get("spill_bytes", 0),
        shared_bytes=shared,
        threads=found.get("threads", 0),
        barriers=found.get("barriers", 0),
        cluster_ctas=found.get("cluster_ctas", 1),
        ctas_per_sm=ctas,
        limited_by=limited_by,
        max_threads_per_sm=limits.threads if limits else None,
        instructions=sum(mix.values()),
        tensor_core={name: mix[name] for name in TENSOR_CORE if mix[name]},
        tma={name: mix[name] for name in TMA if mix[name]},
        plain_loads=mix["LDG"],
        local_memory=sum(mix[name] for name in SPILL),
    )
