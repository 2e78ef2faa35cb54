"""The server's side of evaluation: starts the supervised referee, asks it, and can kill the whole of it."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import socket
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from tilewright.isolation.process import kept_environment
from tilewright.task import Backend, TaskError
from tilewright.wire.channel import ChannelError, Message, decode, encode, header_length

Tell = Callable[[str], None]

MAX_FRAME = 16 * 2**20
STOP_PATIENCE_S = 10.0


class EvaluatorDied(RuntimeError):
    """The referee ended or stopped making sense; the evaluation is void, and the next one starts a new referee."""


class Evaluator:
    """A referee process for one backend, started on first use; one request at a time."""

    def __init__(self, backend: Backend, arch: str, module: str = "tilewright.evaluation.referee") -> None:
        """`arch` is the architecture that the `cpu` backend models; on `cuda` the device at hand decides. `module` is
        the referee's program."""
        self.backend = backend
        self.arch = arch
        self._module = module
        self._turn = asyncio.Lock()
        self._process: asyncio.subprocess.Process | None = None
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None
        self._log: asyncio.Task[None] | None = None
        self._tail = bytearray()
        self.folder = Path(tempfile.mkdtemp(prefix="tilewright-"))
        """Private files of the referee and its workers; there while a referee is, or is about to be."""

    async def request(self, op: str, tell: Tell, timeout_s: float, **message: object) -> Message:
        """Ask the referee and wait for its reply; `tell` gets its progress.

        Raises `TaskError` for a task that cannot be judged or a GPU that is in use, `TimeoutError` after `timeout_s`,
        `EvaluatorDied` where the referee failed. A cancelled, timed-out or failed request ends the referee and all that
        it started.
        """
        async with self._turn:
            try:
                async with asyncio.timeout(timeout_s):
                    await self._start()
                    return await self._exchange({"op": op, **message}, tell)
            except TaskError:
                raise
            except BaseException:
                await asyncio.shield(self.close())
                raise

    @property
    def running(self) -> bool:
        """Whether a referee is there that has read the task already."""
        return self._process is not None and self._process.returncode is None

    async def close(self) -> None:
        """End the referee and delete its files."""
        await self._stop()
        shutil.rmtree(self.folder, ignore_errors=True)

    async def _exchange(self, message: Message, tell: Tell) -> Message:
        assert self._reader is not None and self._writer is not None
        self._writer.write(encode(message))
        try:
            await self._writer.drain()
            while True:
                length = header_length(await self._reader.readexactly(4))
                answer, *_ = decode(await self._reader.readexactly(length))
                if "progress" in answer:
                    tell(str(answer["progress"]))
                elif "usage_error" in answer:
                    raise TaskError(answer["usage_error"])
                elif "failure" in answer:
                    raise EvaluatorDied(f"the referee failed:\n{answer['failure']}")
                else:
                    reply: Message = answer["reply"]
                    return reply
        except (asyncio.IncompleteReadError, ChannelError, OSError) as error:
            await asyncio.sleep(0.2)
            tail = self._tail.decode("utf-8", "replace")[-2000:]
            raise EvaluatorDied(
                f"the referee ended unexpectedly ({type(error).__name__}); its last words:\n{tail}"
            ) from None

    async def _start(self) -> None:
        if self.running:
            return
        await self._stop()
        ours, theirs = socket.socketpair()
        with theirs:
            self._process = await self._supervised(theirs)
        self._tail.clear()
        self._log = asyncio.create_task(self._read_log(self._process))
        ours.setblocking(False)
        self._reader, self._writer = await asyncio.open_connection(sock=ours, limit=MAX_FRAME)

    async def _supervised(self, channel: socket.socket) -> asyncio.subprocess.Process:
        """Start a referee, whose end of the channel is `channel`, and its supervisor."""
        number = channel.fileno()
        folder = str(self.folder)
        own = {"TILEWRIGHT_PASS_FDS": str(number), "TILEWRIGHT_FOLDER": folder, "TMPDIR": folder}
        return await asyncio.create_subprocess_exec(
            sys.executable, "-I", "-m", "tilewright.isolation.supervisor",
            sys.executable, "-I", "-B", "-u", "-X", "faulthandler", "-m", self._module,
            f"{self.backend}:{self.arch}", folder, "{pid}", str(number),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            pass_fds=(number,),
            env=kept_environment() | own,
            start_new_session=True,
        )  # fmt: skip

    async def _read_log(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdout is not None
        while chunk := await process.stdout.read(65536):
            self._tail += chunk
            del self._tail[:-8192]

    async def _stop(self) -> None:
        process, self._process = self._process, None
        if self._writer is not None:
            self._writer.close()
            self._reader = self._writer = None
        if process is None:
            return
        with contextlib.suppress(ProcessLookupError):
            process.terminate()  # the supervisor ends everything, and then itself
        try:
            async with asyncio.timeout(STOP_PATIENCE_S):
                await process.wait()
        except TimeoutError:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()
        if process.stdin is not None:
            process.stdin.close()
        if self._log is not None:
            await asyncio.wait({self._log}, timeout=1.0)  # its output ends with it
            self._log.cancel()
            self._log = None
