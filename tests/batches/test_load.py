import json
import multiprocessing
import os
import re
import signal
import subprocess
import sys
import time

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest

from attune.audio.augment import open_augmenter
from attune.audio.settings import AugmentConfig, NoiseConfig
from attune.batches.load import CachedBatches, Reader, load, micros_from
from attune.batches.micro_batch import LoadedMicroBatch, MicroBatchPlan, Position
from attune.batches.plan import Budget, plan_epoch
from attune.corpora import open_manifest
from attune.errors import ConfigError, DataError
from attune.testing import make_corpus


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    folder = tmp_path_factory.mktemp("load")
    return open_manifest(make_corpus(folder, utterances=12, seed=3), folder / "index")


def micros(count, size=2):
    return [MicroBatchPlan(Position(), slot, np.arange(slot * size, (slot + 1) * size)) for slot in range(count)]


def letters(utterance):
    return tuple(ord(letter) for letter in utterance.text)


@pytest.mark.parametrize("workers", [0, 2])
def test_batches_come_in_order_whoever_reads_them(corpus, workers):
    found = list(load(Reader(corpus, letters), micros(6), workers))
    assert [loaded.micro.slot for loaded in found] == list(range(6))
    assert [name for loaded in found for name in loaded.batch.ids] == [f"{row:05d}" for row in range(12)]


def test_rows_are_padded_with_zeros_to_the_longest(corpus):
    batch, _ = Reader(corpus, letters).read(np.arange(4))
    assert batch.audio.shape == (4, int(batch.lengths.max()))
    for row, (length, tokens) in enumerate(zip(batch.lengths, batch.tokens.lengths, strict=True)):
        assert not batch.audio[row, length:].any() and not batch.tokens.ids[row, tokens:].any()
        assert tuple(batch.tokens.ids[row, :tokens].tolist()) == letters(corpus[row])


def test_workers_are_forked_however_python_starts_processes(corpus):
    usual = multiprocessing.get_start_method()
    multiprocessing.set_start_method("forkserver", force=True)  # as from Python 3.14 on
    try:
        found = list(load(Reader(corpus, letters, fits=lambda samples, target: True), micros(2), workers=1))
    finally:
        multiprocessing.set_start_method(usual, force=True)
    assert [loaded.micro.slot for loaded in found] == [0, 1]


@pytest.mark.parametrize("workers", [0, 1])
def test_a_bad_row_keeps_its_message_on_the_way_from_a_worker(corpus, workers):
    reader = Reader(corpus, letters, fits=lambda samples, target: False)
    with pytest.raises(DataError, match=r"^.*manifest\.jsonl:1: utterance '00000' has \d+ tokens, too many"):
        list(load(reader, micros(1), workers))


def test_dropped_rows_are_named_and_the_rest_is_read(corpus):
    def only_even(utterance):
        if int(utterance.id) % 2:
            raise DataError(f"{utterance.id} is odd")
        return (1,)

    batch, dropped = Reader(corpus, only_even, drops_bad_rows=True).read(np.arange(4))
    assert batch.ids == ("00000", "00002")
    assert [(each.row, each.reason) for each in dropped] == [(1, "00001 is odd"), (3, "00003 is odd")]


def test_going_on_from_a_position_reads_nothing_before_it(corpus):
    plan = plan_epoch(corpus.seconds, np.arange(12), Budget(None, 1, 2), seed=1, epoch=0)
    read = []
    reader = Reader(corpus, lambda utterance: read.append(utterance.id) or (1,))
    late = Position(step=4, epoch=0, step_in_epoch=4)
    first = next(load(reader, micros_from(late, lambda epoch: plan, 0, 1, False), workers=0))
    assert first.micro.position == Position(5, 0, 5)
    assert read == list(first.batch.ids)


def test_a_small_set_is_read_once_and_a_large_one_each_time(corpus):
    times = []

    def read():
        times.append(None)
        return iter([LoadedMicroBatch(micro, None) for micro in micros(3)])

    for remembers, expected in ((True, 1), (False, 3)):
        times.clear()
        batches = CachedBatches(read, remembers)
        assert [len(list(batches)) for _ in range(3)] == [3, 3, 3]
        assert len(times) == expected


def test_a_killed_worker_ends_the_loading_with_an_error(corpus):
    pids = []

    def slow(utterance):
        time.sleep(0.2)
        return (os.getpid(),)

    with pytest.raises(RuntimeError, match="worker"):
        for loaded in load(Reader(corpus, slow), micros(6), workers=1):
            pids.append(int(loaded.batch.tokens.ids[0, 0]))
            os.kill(pids[-1], signal.SIGKILL)
    assert pids[0] != os.getpid()


def test_a_target_is_made_of_the_audio_as_it_is_heard(corpus):
    def timed(utterance):
        return (round(1000 * utterance.seconds),)

    plain, _ = Reader(corpus, timed).read(np.arange(4))
    slow, _ = Reader(corpus, timed, augmenter=open_augmenter(AugmentConfig(speeds=(0.5,)))).read(np.arange(4))
    assert np.allclose(slow.tokens.ids, 2 * plain.tokens.ids, atol=2)


def test_a_noise_that_cannot_be_read_is_no_fault_of_the_row(corpus, tmp_path):
    (tmp_path / "x.wav").write_text("no audio")
    noisy = open_augmenter(AugmentConfig(noise=NoiseConfig(folder=str(tmp_path), chance=1.0)))
    with pytest.raises(ConfigError, match=r"^augment: .*x\.wav"):
        Reader(corpus, letters, drops_bad_rows=True, augmenter=noisy).read(np.arange(4))


SMALL_SHARED_MEMORY = ["unshare", "--mount", "sh", "-c", 'mount -t tmpfs -o size=64k tmpfs /dev/shm && exec "$@"', "sh"]
COMPARE = """
import sys
from pathlib import Path
import numpy as np
from attune.batches.load import Reader, load
from attune.batches.micro_batch import MicroBatchPlan, Position
from attune.corpora import open_manifest

corpus = open_manifest(Path(sys.argv[1]), Path(sys.argv[2]))
plans = [MicroBatchPlan(Position(step + 1), 0, np.arange(12)) for step in range(4)]
reader = Reader(corpus, lambda utterance: (1, 2))
sums = [[float(each.batch.audio.abs().sum()) for each in load(reader, plans, workers)] for workers in (0, 2)]
assert sums[0] == sums[1] and sums[0][0] > 0, sums
"""


def test_full_shared_memory_is_done_without(tmp_path):
    manifest = make_corpus(tmp_path / "corpus", utterances=12)
    if subprocess.run([*SMALL_SHARED_MEMORY, "true"], capture_output=True).returncode:
        pytest.skip("mounting a small /dev/shm needs privileges")
    words = [sys.executable, "-c", COMPARE, str(manifest), str(tmp_path / "index")]
    done = subprocess.run([*SMALL_SHARED_MEMORY, *words], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize("drops", [False, True])
def test_a_recording_whose_header_lies_is_a_bad_row_wherever_it_is_read(tmp_path, workers, drops):
    manifest = make_corpus(tmp_path, utterances=2, seed=3)
    content = bytearray((tmp_path / "audio/00001.wav").read_bytes())
    content[24:28] = (1).to_bytes(4, "little")  # Hz: a second of it would be four hours
    (tmp_path / "audio/00001.wav").write_bytes(content)
    reader = Reader(open_manifest(manifest, tmp_path / "index"), letters, drops_bad_rows=drops)
    expected = r"manifest\.jsonl:2: utterance '00001': .*00001\.wav .*header is damaged"
    if drops:
        (loaded,) = load(reader, micros(1), workers)
        assert loaded.batch.ids == ("00000",)
        assert re.search(expected, loaded.dropped[0].reason)
    else:
        with pytest.raises(DataError, match=expected):
            list(load(reader, micros(1), workers))


@pytest.mark.parametrize("has_checksums", [False, True])
def test_a_damaged_parquet_page_is_a_bad_row(tmp_path, has_checksums):
    recordings = make_corpus(tmp_path, utterances=2).parent / "audio"
    contents = [path.read_bytes() for path in sorted(recordings.iterdir())]
    table = pyarrow.table({"audio": pyarrow.array(contents, pyarrow.binary())})
    path = tmp_path / "a.parquet"
    pyarrow.parquet.write_table(
        table, path, row_group_size=1, compression="zstd", use_dictionary=False, write_page_checksum=has_checksums
    )
    damaged = bytearray(path.read_bytes())
    first = 200 if has_checksums else 4  # samples; or the page's header, without which nothing tells
    damaged[first : first + 16] = bytes(byte ^ 0xFF for byte in damaged[first : first + 16])
    path.write_bytes(damaged)
    rows = [{"id": f"u{row}", "audio": "a.parquet", "row": row, "seconds": 1, "text": "a"} for row in (0, 1)]
    manifest = tmp_path / "manifest.jsonl"
    manifest.write_text("".join(json.dumps(row) + "\n" for row in rows))
    reader = Reader(open_manifest(manifest, tmp_path / "index"), letters, drops_bad_rows=True)
    batch, dropped = reader.read(np.arange(2))
    assert batch.ids == ("u1",)
    assert re.search(r"jsonl:1: utterance 'u0': .*a\.parquet is damaged in row group 0: ", dropped[0].reason)
    assert "\n" not in dropped[0].reason
