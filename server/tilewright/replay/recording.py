"""The replayer that records: CUPTI takes down what each call launches, and how long each launch takes.

`tilewright.isolation.confined` runs it in place of `replay/process.py`. What it times is no verdict, since CUPTI takes
part in each launch.
"""

from __future__ import annotations

import socket

from tilewright.gpu.cupti import NotRecorded, Recorder
from tilewright.isolation.confinement import Isolation
from tilewright.replay import process


def main(channel: socket.socket, isolation: Isolation) -> None:
    """As `process.main`, with a recorder, which is made before CUDA is used."""
    try:
        recorder: Recorder | NotRecorded = Recorder()
    except NotRecorded as error:
        recorder = error
    process.main(channel, isolation, recorder)
