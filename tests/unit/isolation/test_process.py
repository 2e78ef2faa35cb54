"""A child process from its parent's side: how long an answer is waited for."""

from __future__ import annotations

import socket
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tilewright.isolation.process import ChildProcess


@pytest.fixture
def silent(tmp_path: Path) -> Iterator[ChildProcess]:
    def start(theirs: socket.socket) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            ["sleep", "3600"], stdout=subprocess.PIPE, pass_fds=(theirs.fileno(),), start_new_session=True
        )

    process = ChildProcess(start, tmp_path)
    yield process
    process.kill()


def test_no_answer_is_waited_for_once_it_is_given_up(silent: ChildProcess) -> None:
    stop = threading.Event()
    threading.Timer(0.3, stop.set).start()
    assert not silent.await_answer(3600, stop=stop)


def test_an_answer_that_does_not_come_in_time_is_none(silent: ChildProcess) -> None:
    assert not silent.await_answer(0.3)
