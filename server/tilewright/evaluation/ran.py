"""Which functions of a candidate ran in its worker, and which its kernels hold."""

from __future__ import annotations

import contextlib
import gc
import sys
import threading
from collections.abc import Iterator
from types import CodeType, FunctionType
from typing import Any

from tilewright.frontends.protocol import imported_runtimes


class Ran:
    """The functions that ran while this watched. Python 3.12 watches all threads, at no cost after a first call."""

    def __init__(self) -> None:
        self._codes: set[CodeType] = set()

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        """Note every function that begins within."""
        if sys.version_info >= (3, 12):
            yield from self._monitored()
            return

        def note(frame: Any, event: str, _: Any) -> None:
            if event == "call":
                self._codes.add(frame.f_code)

        before = sys.getprofile()
        sys.setprofile(note)
        threading.setprofile(note)
        try:
            yield
        finally:
            sys.setprofile(before)
            threading.setprofile(before)

    def _monitored(self) -> Iterator[None]:
        monitoring: Any = sys.monitoring  # type: ignore[attr-defined, unused-ignore]
        tool = monitoring.PROFILER_ID

        def note(code: CodeType, _: int) -> Any:
            self._codes.add(code)
            return monitoring.DISABLE

        if monitoring.get_tool(tool) is not None:  # the candidate profiles itself
            yield
            return
        monitoring.use_tool_id(tool, "tilewright")
        monitoring.register_callback(tool, monitoring.events.PY_START, note)
        monitoring.set_events(tool, monitoring.events.PY_START)
        monitoring.restart_events()
        try:
            yield
        finally:
            monitoring.set_events(tool, 0)
            monitoring.free_tool_id(tool)

    def names(self, root: str) -> list[str]:
        """The functions below `root` that ran, as PATH:NAME; those that launched kernels name count, too."""
        functions: dict[str, list[CodeType]] = {}
        for one in gc.get_objects():
            if type(one) is FunctionType and one.__code__.co_filename.startswith(root):
                functions.setdefault(one.__name__, []).append(one.__code__)
        waiting = [code for runtime in imported_runtimes() for code in runtime.launched()]
        while waiting:
            code = waiting.pop()
            if code not in self._codes:
                self._codes.add(code)
                waiting += [inner for name in code.co_names + code.co_freevars for inner in functions.get(name, [])]
                waiting += [inner for inner in code.co_consts if isinstance(inner, CodeType)]
        own = {code for code in self._codes if code.co_filename.startswith(root)}
        named = {(code.co_filename.removeprefix(root), code.co_qualname.replace(".<locals>", "")) for code in own}
        return sorted(f"{path}:{name}" for path, name in named)
