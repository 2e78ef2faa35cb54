"""What a session keeps of a check that found a whole output wrong."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import torch

from tests.conftest import FASTER_KERNEL, SCALE_KERNEL
from tests.stage import edit, play, quiet, start
from tilewright.evaluation.results import Status
from tilewright.session.checkout import Checkout
from tilewright.session.loop import Loop
from tilewright.session.rerun import rerun


def test_a_whole_output_that_is_wrong_is_kept_with_what_went_in(make_task: Callable[..., Path]) -> None:
    root = make_task()

    async def scene(loop: Loop) -> None:
        await start(loop)
        folder = Checkout(root).current_folder()
        assert folder is not None
        folder /= "mismatches"
        edit(root, FASTER_KERNEL)
        assert (await loop.run_correctness(quiet)).status is Status.PASSED
        assert not folder.exists(), "right kernels leave nothing"
        edit(root, SCALE_KERNEL.replace("values * factor", "values + factor"))
        report = await loop.run_correctness(quiet)
        assert report.status is Status.WRONG_VALUES
        [path] = folder.iterdir()
        state = loop.checkout.peek()
        assert state is not None
        failed = state.checked
        assert failed is not None
        assert failed.result.message.count(f"; what went in and what came out is in {path}") == 1
        assert path.stem == failed.result.cases[-1].inputs_hash[:16]
        kept = torch.load(path)
        x, factor = kept["inputs"]["x"], kept["inputs"]["factor"]
        assert torch.equal(kept["expected"][0], x.double() * factor)
        assert torch.equal(kept["got"][0], x + factor)
        assert torch.equal(kept["after"]["x"], x)
        loop.revert()
        await loop.append_result("adds instead", quiet)
        await loop.end("enough", quiet)

    play(root, scene)
    folder = Checkout(root).current_folder()
    assert folder is not None
    [path] = (folder / "mismatches").iterdir()
    path.unlink()
    asyncio.run(rerun(Checkout(root), 1, "", quiet))
    assert not [*(folder / "mismatches").iterdir()], "a rerun changes nothing in the session"
