"""Programs once each, for a profiler that is told when to look: ncu runs this, and sees no candidate.

Run as `python -I -m tilewright.replay.once FILE...`, in a folder of its own.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

from cuda.bindings import driver as cuda

from tilewright.gpu.driver import ok
from tilewright.isolation.confinement import confine
from tilewright.programs.draws import examples_of
from tilewright.programs.format import read
from tilewright.programs.model import Kernel, Program
from tilewright.replay.calls import call, mapped
from tilewright.replay.device import Device
from tilewright.replay.load import launch
from tilewright.replay.rounds import laid_out

LIMIT_S = 60.0
"""For one call, whose kernels a profiler runs again and again."""


def main(files: list[Path]) -> None:
    """Run each program twice, the second time with the profiler on."""
    device = Device()
    ok(cuda.cuProfilerStart(), "turning the profiler on")  # ncu connects and prepares here, while this process may
    ok(cuda.cuProfilerStop(), "turning the profiler off")
    print(f"isolation: {confine(writable=[Path.cwd()], readable=[file.parent for file in files])}", flush=True)
    for file in files:
        once(device, read(file))


def once(device: Device, program: Program) -> None:
    """Run a program on the inputs that it holds, or on drawn ones, and again with the profiler on."""
    draw = []
    for data in examples_of(program):
        draw.append(device.allocate(len(data)))
        device.write(draw[-1], data)
    print(f"counts {sum(isinstance(node, Kernel) for node in program.layout.nodes)}", flush=True)
    with laid_out(device, [program], [draw], LIMIT_S) as (arm,):
        call(device, arm, arm.loaded.graph, 0, mapped([program]), LIMIT_S)
        for area in (*arm.held, *arm.draws[0]):
            device.copy(area.at, area.copy, area.size)
        device.wait(time.monotonic() + LIMIT_S)
        ok(cuda.cuProfilerStart(), "turning the profiler on")
        for node in program.layout.nodes:  # ncu makes kernels of cuTile fail in a graph: with an illegal instruction
            launch(node, arm.loaded.functions, device.context, device.stream)
        device.wait(time.monotonic() + LIMIT_S)
        ok(cuda.cuProfilerStop(), "turning the profiler off")
    for at in draw:
        device.free(at)


if __name__ == "__main__":
    main([*map(Path, sys.argv[1:])])
