import dataclasses
import json
import os
from collections import Counter
from itertools import islice, takewhile
from pathlib import Path

import pytest

from attune.batches.load import Reader, load
from attune.batches.micro_batch import Position
from attune.batches.plan import Budget
from attune.batches.stream import (
    Cursor,
    Part,
    StreamRules,
    StreamSample,
    forgetting,
    plan_block,
    read_block,
    stream_micros,
)
from attune.errors import DataError
from attune.loading.data import open_stream
from attune.recipe import load as load_recipe
from attune.site import Site
from attune.sources import Cache
from attune.types import Utterance

from miniatures import encoded, put, shard
from range_server import Behavior, serving
from tiny import write_recipe

SHARDS, EACH, WINDOW = 5, 7, 8
IDS = {f"{number}-{index}" for number in range(SHARDS) for index in range(EACH)}
BUDGET = Budget(None, 2, 3)
THOUSANDS = int(os.environ.get("ROWS", "30000")) // 1000  # rows over which memory is watched


def rules(**changes):
    return dataclasses.replace(StreamRules(BUDGET, 17, 0.1, 30.0, False), **changes)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("shards")
    for number in range(SHARDS):
        names = [f"{number}-{index}" for index in range(EACH)]
        shard(folder / f"{number:03d}.tar", names, seconds=0.2 + 0.05 * number)
    return folder


@pytest.fixture
def shards(folder, tmp_path):
    words = ["data.train=[]", f"data.stream.shards=[{folder}]", f"data.stream.window={WINDOW}"]
    recipe = load_recipe(write_recipe(tmp_path, 4), words).recipe
    return open_stream(recipe, tmp_path / "run", Site(Cache(tmp_path / "cache"), 0))


def epochs(micros, count):
    """The micro-batches of the first epochs."""
    return list(takewhile(lambda micro: micro.position.epoch < count, micros))


def ids(micros):
    return Counter(utterance.id for micro in micros for utterance in micro.utterances)


def made_of(shards, seconds):
    """The same stream with these shards: the seconds of each sample, none where it is bad."""

    def samples(name, start):
        for index, length in enumerate(seconds[name][start:], start + 1):
            utterance = Utterance(f"{name}-{index}", length) if length else None
            yield StreamSample(utterance, b"x", index, "" if length else f"{name}-{index} is bad")

    return dataclasses.replace(shards, names=tuple(seconds), samples=samples, window=2)


def test_a_stream_without_anything_to_train_on_says_why(shards):
    nothing = made_of(shards, {"a": [30.0, 31.0], "b": [0.0, 0.0]})
    bounds = rules(max_seconds=20.0, drops_bad_rows=True)
    with pytest.raises(DataError, match="No utterance of the stream can be used") as told:
        next(stream_micros(Position(), nothing, bounds, Part(0, 1, False)))
    assert "b-1 is bad" in str(told.value) and "2 utterances of block" in str(told.value)


@pytest.mark.parametrize("seed", range(6))
def test_a_whole_shard_of_bad_samples_ends_nothing_and_is_told(shards, seed):
    mixed = dataclasses.replace(made_of(shards, {"a": [1.0] * 4, "b": [0.0, 0.0]}), seed=seed)
    micros = epochs(stream_micros(Position(), mixed, rules(drops_bad_rows=True), Part(0, 1, False)), 3)
    assert set(ids(micros).values()) == {3}
    reasons = Counter(dropped.reason for micro in micros for dropped in micro.dropped)
    assert set(reasons.values()) <= {2, 3} and len(reasons) == 2  # the last may be told with the next epoch


@pytest.mark.parametrize("ranks", [1, 2, 3, 5])
def test_every_id_is_once_in_every_epoch_on_any_number_of_ranks(shards, ranks):
    of_rank = [epochs(stream_micros(Position(), shards, rules(), Part(rank, ranks, False)), 3) for rank in range(ranks)]
    for epoch in range(3):
        together = [micro for micros in of_rank for micro in micros if micro.position.epoch == epoch]
        assert ids(together) == Counter(IDS)
    # Every rank takes part in every step, and all agree where each ends.
    assert len({tuple(dict.fromkeys(micro.position for micro in micros)) for micros in of_rank}) == 1


def test_epochs_and_seeds_shuffle_anew_and_the_same_ones_do_not(shards):
    def order(epoch, seed=17):
        seeded = dataclasses.replace(shards, seed=seed)
        start = Position(epoch=epoch)
        micros = stream_micros(start, seeded, rules(seed=seed), Part(0, 1, False))
        return [each.id for micro in islice(micros, 12) for each in micro.utterances]

    assert order(0) == order(0)
    assert order(0) != order(1)
    assert shards.order(0) != shards.order(1) and sorted(shards.order(0)) == sorted(shards.order(1))
    for path in shards.folder.glob("*"):
        path.unlink()
    assert order(0, seed=18) != order(0)


@pytest.mark.parametrize(("before", "after"), [(1, 1), (1, 2), (2, 1), (3, 2)])
def test_a_run_goes_on_from_any_position_on_another_number_of_ranks(shards, before, after):
    whole = epochs(stream_micros(Position(), shards, rules(), Part(0, 1, False)), 2)
    positions = list(dict.fromkeys(micro.position for micro in whole))
    for position in positions:
        saved = Position(**json.loads(json.dumps(dataclasses.asdict(position))))
        done = [micro for micro in whole if micro.position.step <= position.step]
        rest = [
            micro
            for rank in range(after)
            for micro in epochs(stream_micros(saved, shards, rules(), Part(rank, after, False)), 2)
        ]
        assert ids([*done, *rest]) == Counter(dict.fromkeys(IDS, 2))
        expected = [micro for micro in whole if micro.position.step > position.step]
        assert {(m.position, m.slot, tuple(u.id for u in m.utterances)) for m in rest if m.utterances} == {
            (m.position, m.slot, tuple(u.id for u in m.utterances)) for m in expected if m.utterances
        }


def test_going_on_reads_one_block_again_and_no_more(shards):
    whole = epochs(stream_micros(Position(), shards, rules(), Part(0, 1, False)), 1)
    position = whole[-1].position
    for path in shards.folder.glob("*-*"):
        path.unlink()
    asked = []

    def counted(shard, start):
        asked.append((shard, start))
        return shards.samples(shard, start)

    watched = dataclasses.replace(shards, samples=counted)
    block = read_block(watched, Cursor(0, position.block, position.shard, position.byte))
    assert len(asked) <= 2 and asked[0][1] == position.byte
    assert {utterance.id for utterance in block.utterances} >= {u.id for u in whole[-1].utterances}


def test_a_block_that_another_rank_has_read_is_not_read_again(shards):
    first = read_block(shards, Cursor())
    deaf = dataclasses.replace(shards, samples=lambda shard, start: pytest.fail("read twice"))
    assert read_block(deaf, Cursor()) == first


def test_batches_are_what_the_shards_hold_and_old_blocks_go(shards, folder):
    reader = Reader((), lambda utterance: tuple(utterance.text.encode()))
    micros = stream_micros(Position(), shards, rules(), Part(0, 1, False))
    heard = Counter()
    most = 0
    for loaded in forgetting(load(reader, micros, 0), shards):
        if loaded.micro.position.epoch == 2:
            break
        most = max(most, len(list(shards.folder.glob("*.bin"))))
        if loaded.batch:
            heard.update(loaded.batch.ids)
            expected = [round((0.2 + 0.05 * int(name[0])) * 16000) for name in loaded.batch.ids]
            assert loaded.batch.lengths.tolist() == expected
    assert heard == Counter(dict.fromkeys(IDS, 2))
    assert most <= 8


def test_progress_is_the_audio_of_the_epoch(shards):
    whole = epochs(stream_micros(Position(), shards, rules(), Part(0, 1, False)), 2)
    total = sum(EACH * (0.2 + 0.05 * number) for number in range(SHARDS))
    for epoch in range(2):
        heard = [micro.position.epoch_seconds for micro in whole if micro.position.epoch == epoch]
        assert heard == sorted(heard) and heard[-1] == pytest.approx(total)


def test_what_is_too_long_is_left_out_and_told(shards):
    block = read_block(shards, Cursor())
    plan, dropped = plan_block(block, rules(max_seconds=0.21))
    assert len(plan.order) < len(block.utterances)
    assert "too short or too long" in dropped[0].reason


def test_a_bad_sample_stops_the_run_or_is_dropped_and_named(tmp_path, shards):
    import tarfile

    with tarfile.open(tmp_path / "bad.tar", "w") as archive:
        put(archive, "good.flac", encoded())
        put(archive, "good.txt", b"fine")
        put(archive, "noise.flac", b"not audio at all")
        put(archive, "noise.txt", b"broken")
        put(archive, "alone.txt", b"no recording")
    bad = dataclasses.replace(shards, names=(str(tmp_path / "bad.tar"),))
    block = read_block(bad, Cursor())
    assert [utterance.id for utterance in block.utterances] == ["good"]
    with pytest.raises(
        DataError, match=r"2 samples of the stream cannot be used:\n.*noise: the recording is not audio"
    ):
        plan_block(block, rules())
    _, dropped = plan_block(block, rules(drops_bad_rows=True))
    assert len(dropped) == 2 and "alone: no recording in the sample" in dropped[1].reason


def test_a_stream_with_nothing_in_it_ends_with_a_message(tmp_path, shards):
    import tarfile

    with tarfile.open(tmp_path / "empty.tar", "w") as archive:
        put(archive, "readme.md", b"nothing")
    empty = dataclasses.replace(shards, names=(str(tmp_path / "empty.tar"),))
    with pytest.raises(DataError, match="no recording in the sample"):
        next(stream_micros(Position(), empty, rules(drops_bad_rows=True), Part(0, 1, False)))


def test_a_worker_asks_for_the_recordings_of_a_batch_together(tmp_path):
    content = encoded()
    (tmp_path / "a.bin").write_bytes(content * 32)
    behavior = Behavior(latency=0.1)
    with serving(tmp_path, behavior) as url:
        far = [
            Utterance(str(number), 0.3, f"{url}/a.bin", first_byte=number * len(content), byte_count=len(content))
            for number in range(32)
        ]
        batch, _ = Reader(far, lambda _: (1,)).read(range(32))
    assert batch.ids == tuple(map(str, range(32)))
    assert behavior.most_at_once > 2


def rss_mib():
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


@pytest.mark.recipe
def test_memory_is_flat_over_many_thousand_rows(tmp_path, shards):
    content = encoded(0.1)

    def samples(shard, start):
        for index in range(start, 1000):
            utterance = Utterance(f"{shard}-{index}", 0.1, text="some text of usual length", labels={"a": "b"})
            yield StreamSample(utterance, content, index + 1)

    many = dataclasses.replace(shards, names=tuple(map(str, range(THOUSANDS))), samples=samples, window=2000)
    reader = Reader((), lambda utterance: (1,))
    micros = stream_micros(Position(), many, rules(budget=Budget(None, 50, 4)), Part(0, 1, False))
    heard, measured = 0, []
    for loaded in forgetting(load(reader, micros, 1), many):
        if loaded.micro.position.epoch == 1:
            break
        heard += len(loaded.batch.ids) if loaded.batch else 0
        measured.append(rss_mib())
    assert heard == THOUSANDS * 1000
    settled, end = max(measured[100:200]), max(measured[-200:])
    told = f"{settled:.1f} MiB after 10,000 rows, {end:.1f} MiB after {heard:,}"
    print(told)
    assert end - settled < 8, told
    assert len(list(many.folder.glob("*.bin"))) <= 8


def test_shards_whose_addresses_are_signed_anew_are_the_same_stream(shards):
    signed = [dataclasses.replace(shards, names=(f"https://h/0.tar?X-Amz-Signature={key}",)) for key in ("a", "b")]
    assert signed[0].fingerprint == signed[1].fingerprint != shards.fingerprint
