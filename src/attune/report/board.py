"""Figures for TensorBoard, appended to an event file by whoever has them.

TensorBoard's own writer does this in a thread, which prints a traceback when the folder was moved or the disk is full;
here the error is the caller's.
"""

import os
import socket
import time
from pathlib import Path

from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.summary.writer.record_writer import RecordWriter

VERSION = "brain.Event:2"  # of the format


class Board:
    """An event file in a folder, which TensorBoard reads while it grows."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(exist_ok=True)
        name = f"events.out.tfevents.{time.time_ns() // 10**9}.{socket.gethostname()}.{os.getpid()}.0"
        self.path = folder / name
        self._append(Event(wall_time=time.time(), file_version=VERSION))

    def add(self, step: int, **values: float) -> None:
        """The figures of a step."""
        summary = Summary(value=[Summary.Value(tag=name, simple_value=value) for name, value in values.items()])
        self._append(Event(wall_time=time.time(), step=step, summary=summary))

    def _append(self, event: Event) -> None:
        with self.path.open("ab") as file:
            RecordWriter(file).write(event.SerializeToString())
