"""Figures for TensorBoard, appended to an event file by whoever has them.

TensorBoard's own writer does this in a thread, which prints a traceback when the folder was moved or the disk is full;
here the error is the caller's.
"""

import os
import socket
import time
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import Summary, SummaryMetadata
from tensorboard.compat.proto.tensor_pb2 import TensorProto
from tensorboard.compat.proto.tensor_shape_pb2 import TensorShapeProto
from tensorboard.compat.proto.types_pb2 import DT_STRING
from tensorboard.summary.writer.record_writer import RecordWriter

from attune.report.sounds import opus
from attune.types import SAMPLE_RATE

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

    def add_text(self, step: int, name: str, markdown: str) -> None:
        """A text in Markdown, as their plug-in for texts reads it."""
        metadata = SummaryMetadata(plugin_data=SummaryMetadata.PluginData(plugin_name="text"))
        shape = TensorShapeProto(dim=[TensorShapeProto.Dim(size=1)])
        tensor = TensorProto(dtype=DT_STRING, string_val=[markdown.encode()], tensor_shape=shape)
        value = Summary.Value(tag=f"{name}/text_summary", metadata=metadata, tensor=tensor)
        self._append(Event(wall_time=time.time(), step=step, summary=Summary(value=[value])))

    def add_audio(self, step: int, name: str, samples: NDArray[np.float32]) -> None:
        """A recording, as Opus."""
        audio = Summary.Audio(
            sample_rate=SAMPLE_RATE,
            num_channels=1,
            length_frames=len(samples),
            encoded_audio_string=opus(samples),
            content_type="audio/ogg",
        )
        self._append(
            Event(wall_time=time.time(), step=step, summary=Summary(value=[Summary.Value(tag=name, audio=audio)]))
        )

    def _append(self, event: Event) -> None:
        with self.path.open("ab") as file:
            RecordWriter(file).write(event.SerializeToString())
