"""`tilewright program`: look at device programs, and run them again."""

from __future__ import annotations

import hashlib
import statistics
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tilewright.interface.terminal import Json, Listing, done, failed, print_answer

if TYPE_CHECKING:
    from tilewright.programs.model import Program

program_app = typer.Typer(cls=Listing, no_args_is_help=True, help="Show or replay what one call launches on the GPU.")
File = Annotated[Path, typer.Argument(help="a device program's file, as in sandbox/SESSION/programs")]
CALLS = 50
LIMIT_S = 20.0


@program_app.command()
def show(file: File, as_json: Json = False) -> None:
    """Show what a program launches, in which order, on which memory. Needs no GPU."""
    from tilewright.programs.identity import identity
    from tilewright.programs.text import shown

    program = _read(file)
    text = shown(program)
    print_answer(as_json, [text], text.splitlines()[0], identity=identity(program), text=text)


@program_app.command()
def replay(
    file: File,
    sanitize: Annotated[
        bool, typer.Option("--sanitize", help="look for memory errors and races by compute-sanitizer; time nothing")
    ] = False,
    as_json: Json = False,
) -> None:
    """Run a program on this machine's GPU, without the code that it was captured from, and time it.

    The inputs are those of the capture, if the file holds them. Else they are drawn: normal values for floats, zeros
    for integers.
    """
    from tilewright.gpu.lease import GpuBusy
    from tilewright.programs.draws import examples_of
    from tilewright.referee.replayer import Fault, Replayer, ReplayerGone, exclusive_gpu

    program = _read(file)
    if sanitize:
        raise typer.Exit(_sanitized(file, as_json))
    try:
        with exclusive_gpu(), Replayer() as replayer:
            ready = replayer.start()
            replayer.load([program], [examples_of(program)])
            found, copy = replayer.alone(0, 0, CALLS, LIMIT_S)
    except Fault as fault:
        raise failed(f"{fault.kind}: {fault}") from None
    except GpuBusy as busy:
        raise failed(str(busy)) from None
    except ReplayerGone as gone:
        raise failed(
            f"{gone}; a program is replayed on the GPU, and `tilewright doctor` says what is missing"
        ) from None
    events, wall = statistics.median(found.events), statistics.median(found.wall)
    summary = f"{events:.2f} us a call by events, {wall:.2f} us by the wall clock"
    where = f"median of {CALLS} calls on {ready.gpu} ({ready.arch}, CUDA {ready.driver})"
    outputs = hashlib.sha256(b"".join(map(bytes, copy.outputs))).hexdigest()
    lines = [summary, where, f"outputs: SHA-256 {outputs}"]
    print_answer(as_json, lines, summary, events_us=events, wall_us=wall, where=where, outputs_sha256=outputs)


def _sanitized(file: Path, as_json: bool) -> int:
    """Say what compute-sanitizer finds in a program. Returns 1 if that is anything."""
    from tilewright.profile.sanitizer import sanitized

    findings = done(lambda: list(sanitized(file)))
    total = sum(count for _, count, _ in findings)
    lines = [line for tool, count, text in findings for line in (f"{tool}: {count} errors", *([text] if count else []))]
    tools = [{"tool": tool, "errors": count, "text": text} for tool, count, text in findings]
    print_answer(as_json, lines, f"{total} errors", tools=tools)
    return int(total > 0)


def _read(file: Path) -> Program:
    from tilewright.programs.format import read
    from tilewright.programs.model import ProgramError

    try:
        return read(file)
    except (ProgramError, OSError) as error:
        raise failed(f"{file} is no device program that can be used: {error}") from None
