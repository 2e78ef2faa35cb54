"""What is traced: a candidate's entry point, warmed up and called many times on each case, with marks around calls.

Run as `python -I -m tilewright.profile.tracedriver JOB`: torch.profiler reads CUPTI, which sees every kernel, copy and
fill. It serves a diagnosis, never a verdict. What it finds it
writes into FOUND, in the folder that it runs in.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tilewright.profile.driven import confine_here, loaded

FOUND = "found.json"
SEED = 1
CALLS, FEWEST_CALLS = 50, 5
TRACE_S = 4.0
"""Of calls, for all cases together: slow ones are called less often."""
WARM_UPS, MOST_WARM_UPS, WARM_S = 5, 500, 0.2
COLD = 2
"""Times the L2 cache that the inputs of all calls take, where they can: so that a call's come from DRAM."""
L2_BYTES = 2**26


def main(arguments: list[str]) -> None:
    """Trace as `arguments[0]`, a job in JSON, says: the task's folder, the root above it, cases, confined."""
    job: dict[str, Any] = json.loads(arguments[0])
    if job["confined"]:  # before a thread is started: CUPTI needs no more than a worker may
        confine_here(job["root"])
    import torch

    torch.cuda.init()
    torch.zeros(1, device="cuda")
    torch.cuda.synchronize()
    listen = _ears(torch)
    found: dict[str, Any] = {"own": [], "cases": []}
    own = _own_names()
    call = _candidate(job["folder"])
    for case in job["cases"]:
        found["cases"].append(_traced(torch, call(case), listen, TRACE_S / len(job["cases"])))
        found["own"] = sorted(own)
        Path(FOUND).write_text(json.dumps(found), encoding="utf-8")
        print("traced", flush=True)


def _own_names() -> set[str]:
    """The names of the kernels that will be compiled here from the candidate's sources; filled as they are."""
    own: set[str] = set()
    try:
        watch_compilers(own)
    except Exception as error:  # another version's compiler: the names that the survey gives remain
        print(f"names of kernels are not watched: {error}", flush=True)
    return own


def watch_compilers(own: set[str]) -> None:
    """Add the names of the kernels that cuTile and Triton compile here from now on, from the candidate's sources."""
    from cuda.tile._execution import kernel

    from tilewright.frontends.images import installed

    compile_tile = kernel._compile

    def compiled(self: Any, *args: Any, **kwargs: Any) -> Any:
        made = compile_tile(self, *args, **kwargs)
        if not installed(self._pyfunc.__code__.co_filename):
            own.add(str(made[1]))
        return made

    kernel._compile = compiled
    if "triton" not in sys.modules:
        try:
            import triton  # noqa: F401 (a candidate in cuTile may have Triton kernels too)
        except ImportError:
            return
    from triton.compiler.compiler import CompiledKernel

    begin = CompiledKernel.__init__

    def begun(self: Any, src: Any, *args: Any, **kwargs: Any) -> None:
        begin(self, src, *args, **kwargs)
        function = getattr(getattr(src, "fn", None), "fn", None)
        if function is not None and not installed(function.__code__.co_filename):
            own.add(str(self.metadata.name))

    CompiledKernel.__init__ = begun


def _candidate(folder: str) -> Callable[[Any], tuple[Callable[[int], object], bool]]:
    """From a case, its call on the inputs of that number, and whether the inputs of all calls stay in the L2 cache."""
    import torch

    from tilewright.evaluation.taskcode import tensor_bytes

    code, candidate = loaded(Path(folder))
    l2_bytes = int(getattr(torch.cuda.get_device_properties(0), "L2_cache_size", 0) or L2_BYTES)

    def prepared(case: Any) -> tuple[Callable[[int], object], bool]:
        first = code.arguments(case, code.inputs(case, SEED))
        size = max(tensor_bytes(first), 1)
        several = min(-(-COLD * l2_bytes // size), CALLS)
        sets = [first, *(first | code.inputs(case, SEED + number) for number in range(1, several))]
        return lambda number: candidate(sets[number % len(sets)]), several * size < COLD * l2_bytes

    return prepared


def _traced(
    torch: Any,
    prepared: tuple[Callable[[int], object], bool],
    listen: Callable[[Callable[[], None]], Any],
    limit_s: float,
) -> dict[str, Any]:
    """A case's calls, warmed up and traced."""
    call, cached = prepared
    for number in range(WARM_UPS):
        call(number)
    torch.cuda.synchronize()
    began, warmed = time.monotonic(), 0
    while warmed < 1 or (time.monotonic() - began < WARM_S and warmed < MOST_WARM_UPS):
        call(warmed)
        warmed += 1
        torch.cuda.synchronize()
    calls = max(FEWEST_CALLS, min(CALLS, int(limit_s * warmed / max(time.monotonic() - began, 1e-6))))

    def work() -> None:
        call(0)  # the first one after a listener was turned on
        for number in range(1, calls + 1):
            torch.cuda._sleep(1)
            call(number)
            torch.cuda._sleep(1)
        torch.cuda.synchronize()

    torch.cuda._sleep(1)  # not inside of a trace for the first time; and twice, since marks come in pairs
    torch.cuda._sleep(1)
    torch.cuda.synchronize()
    return {"calls": calls, "cached": cached, "events": listen(work)}


def _ears(torch: Any) -> Callable[[Callable[[], None]], list[Any]]:
    """What listens to work by torch.profiler: name, start and duration in us, and number of the launch, of each GPU
    activity. Raises RuntimeError where it hears nothing."""
    device, host = torch.profiler.ProfilerActivity.CUDA, torch.profiler.ProfilerActivity.CPU

    def with_activities(activities: list[Any]) -> Callable[[Callable[[], None]], list[Any]]:
        def listen(work: Callable[[], None]) -> list[Any]:
            with torch.profiler.profile(activities=activities) as trace:
                work()
                torch.cuda.synchronize()
            return [
                [event.name, float(event.time_range.start), float(event.time_range.elapsed_us()), int(event.id)]
                for event in trace.events()
                if event.device_type == torch.autograd.DeviceType.CUDA
                and not getattr(event, "is_user_annotation", False)
            ]

        return listen

    torch.cuda._sleep(1)
    for activities in ([device], [host, device]):
        listen = with_activities(activities)
        if listen(lambda: torch.cuda._sleep(1)):
            return listen
    raise RuntimeError("CUPTI recorded no kernel: another profiler may hold it, or this user may not")


if __name__ == "__main__":
    main(sys.argv[1:])
