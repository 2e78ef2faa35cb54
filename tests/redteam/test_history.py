"""What an agent may forge of a session's history beside the journal's own file: none of it is believed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import SLOWER_KERNEL
from tests.forging import faster, rechained, records
from tests.stage import judged, play, start
from tilewright.errors import UsageError
from tilewright.session.loop import Loop


@pytest.mark.slow
def test_another_folder_in_the_place_of_the_sessions_is_not_believed(make_task: Callable[..., Path]) -> None:
    root = make_task()

    async def scene(loop: Loop) -> None:
        await start(loop)
        await judged(loop, SLOWER_KERNEL)
        found = records(root)
        faster(found)
        for pointer in ("../outside", "forged"):
            other = root / "sandbox" / pointer
            other.mkdir(parents=True)
            (other / "journal.jsonl").write_text(rechained(found))
            (root / "sandbox" / "current").write_text(pointer + "\n")
            with pytest.raises(UsageError):
                loop.checkpoint()

    play(root, scene)
