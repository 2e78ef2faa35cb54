"""What ncu watches: a candidate's entry point called on each case, and the profiler on around the last call of each.

Run as `python -I -m tilewright.profile.counterdriver JOB`. It serves a diagnosis, never a verdict: what it computes is
not looked at, its inputs come from a fixed seed, and no secret of a session reaches it.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import torch

from tilewright.profile.driven import confine_here, loaded

WARM_UPS = 3
SEED = 1


def main(arguments: list[str]) -> None:
    """Count as `arguments[0]`, a job in JSON, says: the task's folder, the root that it lies below, cases, confined."""
    job: dict[str, Any] = json.loads(arguments[0])
    torch.cuda.init()
    torch.zeros(1, device="cuda")
    torch.cuda.synchronize()
    torch.cuda.profiler.start()  # ncu connects and prepares here, while this process still may
    torch.cuda.profiler.stop()
    if job["confined"]:
        confine_here(job["root"])
    code, candidate = loaded(Path(job["folder"]))
    for case in job["cases"]:
        given = code.arguments(case, code.inputs(case, SEED))
        for _ in range(WARM_UPS):
            candidate(given)
        torch.cuda.synchronize()
        torch.cuda.profiler.start()
        candidate(given)
        torch.cuda._sleep(1)  # MARK: where the next case begins
        torch.cuda.synchronize()
        torch.cuda.profiler.stop()
        print("counted", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
