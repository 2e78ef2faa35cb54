"""A process that compiles kernels and runs no code of a candidate; it may write to its own folder alone."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from tilewright.isolation.confinement import confine
from tilewright.isolation.limits import apply_limits
from tilewright.isolation.supervisor import die_with_parent

if __name__ == "__main__":
    die_with_parent(int(sys.argv[1]))
    apply_limits()
    isolation = confine(writable=[Path.cwd()], readable=[])

import socket
from concurrent.futures import ThreadPoolExecutor

from tilewright.compiler.assembling import Lowered, assemble
from tilewright.evaluation.results import Status
from tilewright.wire.channel import Channel, ChannelClosed, Message


def cpus() -> int:
    """How many compiles run at once: one for each processor that this process may use."""
    return len(os.sched_getaffinity(0))


def compile_message(message: Message, buffers: list[bytearray]) -> list[bytes]:
    """What the kernels of a request were compiled to, as JSON, in its order."""
    sources = [
        Lowered(**described, bytecode=bytes(bytecode))
        for described, bytecode in zip(message["kernels"], buffers, strict=True)
    ]
    folder, timeout_s = Path.cwd(), float(message["compile_s"])
    with ThreadPoolExecutor(cpus()) as threads:
        made = threads.map(lambda source: assemble(source, timeout_s, folder), sources)
        return [one.model_dump_json().encode() for one in made]


def main(arguments: list[str]) -> None:
    """Run as `python -I -m tilewright.evaluation.compiling PARENT FD`."""
    channel = Channel(socket.socket(fileno=int(arguments[1])))
    channel.send({"isolation": isolation.model_dump()})
    try:
        while True:
            message, buffers = channel.receive()
            try:
                channel.send({"status": Status.PASSED}, compile_message(message, buffers))
            except Exception as error:
                channel.send({"status": Status.CRASHED, "message": f"the compiling process failed: {error!r}"})
    except ChannelClosed:
        pass


if __name__ == "__main__":
    main(sys.argv[1:])
