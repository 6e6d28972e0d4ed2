"""Corpora in the layouts of the real ones, a few tenths of a second each, with the traps that the real ones have."""

import gzip
import io
import json
import tarfile
from pathlib import Path

import numpy as np
import soundfile

from attune import catalog
from attune.corpora import CORPORA, CorpusPaths, open_manifest, prepare_split

COUNT = iter(range(10_000))


def tone(seconds=0.3, rate=16000, channels=1):
    """A sound that no other call gives."""
    time = np.arange(int(seconds * rate)) / rate
    waves = [0.2 * np.sin(2 * np.pi * (200 + 7 * next(COUNT)) * time) for _ in range(channels)]
    return np.stack(waves, axis=1) if channels > 1 else waves[0]


def audio(path: Path, seconds=0.3, rate=16000, channels=1, **how):
    path.parent.mkdir(parents=True, exist_ok=True)
    soundfile.write(path, tone(seconds, rate, channels), rate, **how)
    return path


def sph(path: Path, seconds=0.3, rate=16000, channels=1, subtype="PCM_16"):
    return audio(path, seconds, rate, channels, format="NIST", subtype=subtype)


def text(path: Path, *lines: str, encoding="utf-8"):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{line}\n" for line in lines), encoding=encoding)
    return path


def librispeech(root: Path, sets=("train-clean-100", "dev-clean", "test-clean")):
    for number, name in enumerate(sets):
        speaker = 100 + number
        folder = root / "LibriSpeech" / name / str(speaker) / "7"
        for index in range(3):
            audio(folder / f"{speaker}-7-{index:04d}.flac")
        missing = f"{speaker}-7-0009 THE FILE IS MISSING"
        lines = [f"{speaker}-7-{index:04d} HELLO NUMBER {index}" for index in range(3)]
        text(folder / f"{speaker}-7.trans.txt", *lines, *([missing] if number == 0 else []))
    return root


def common_voice(root: Path):
    head = "client_id\tpath\tsentence\tup_votes\tlocale"
    for number, split in enumerate(("train", "dev", "test")):
        names = [f"common_voice_fr_{number}{index}.mp3" for index in range(3)]
        rows = [f'voice{number}\t{name}\tÉté, «déjà» "là"\t2\tfr' for name in names]
        for name in names:
            audio(root / "clips" / name, rate=32000, format="MP3")
        if split == "train":
            rows += [
                rows[0],
                "voice0\tnowhere.mp3\tperdu\t2\tfr",
                "voice0\t../../secret.mp3\thors\t2\tfr",
                f"voice0\t{names[1]}x\t \t2\tfr",
            ]
        text(root / f"{split}.tsv", head, *rows)
    text(root / "clip_durations.tsv", "clip\tduration[ms]", "common_voice_fr_00.mp3\t300", "x.mp3\t-5")
    return root


def tedlium(root: Path):
    for split in ("train", "dev", "test"):
        folder = root / "legacy" / split
        sph(folder / "sph" / f"Talk_{split}.sph", 3.0)
        text(
            folder / "stm" / f"Talk_{split}.stm",
            ";; a comment",
            f"Talk_{split} 1 Someone_{split} 0.00 1.00 <o,f0,male> it 's {{COUGH}} a talk(2) <unk>",
            f"Talk_{split} 1 inter_segment_gap 1.00 1.20 <o,f0,> ignore_time_segment_in_scoring",
            f"Talk_{split} 1 Someone_{split} 1.20 2.90 <o,f0,male> and they 're done",
            f"Talk_{split} 1 Someone_{split} 2.95 2.95 <o,f0,male> no time",
        )
    return root


def switchboard(root: Path):
    for call in ("2001", "2005"):
        sph(root / "swb1_d1" / "data" / f"sw0{call}.sph", 2.0, 8000, 2, "ULAW")
        for side in "AB":
            text(
                root / "swb_ms98_transcriptions" / call[:2] / call / f"sw{call}{side}-ms98-a-trans.text",
                f"sw{call}{side}-ms98-a-0001 0.000000 0.400000 [silence]",
                f"sw{call}{side}-ms98-a-0002 0.400000 1.200000 [laughter-yeah] i th[ink]- them_1 know [noise]",
                f"sw{call}{side}-ms98-a-0003 1.200000 9.000000 beyond the end of the call",
            )
            text(root / "swb_ms98_transcriptions" / call[:2] / call / f"sw{call}{side}-ms98-a-word.text", "no use")
    return root


def an4(root: Path, raw=False):
    for split, speakers in (("train", ("fash", "mblw")), ("test", ("fcaw",))):
        lines = []
        for speaker in speakers:
            for number in (1, 2):
                path = root / "an4" / "wav" / f"an4_{split}" / speaker / f"an{number}-{speaker}-b.sph"
                if raw:
                    path.parent.mkdir(parents=True, exist_ok=True)
                    (tone() * 32767).astype(">i2").tofile(path.with_suffix(".raw"))
                else:
                    sph(path)
                lines.append(f"<s> ONE {number} </s> (an{number}-{speaker}-b)")
        text(root / "an4" / "etc" / f"an4_{split}.transcription", *lines, "<s> LOST </s> (an9-none-b)", "no brackets")
    return root


def speech_commands(root: Path):
    for word in ("yes", "no", "bed"):
        for speaker in ("aa11", "bb22", "cc33"):
            audio(root / word / f"{speaker}_nohash_0.wav", 1.0)
    audio(root / "_background_noise_" / "pink.wav", 20.0)
    text(root / "validation_list.txt", *(f"{word}/bb22_nohash_0.wav" for word in ("yes", "no", "bed")))
    text(root / "testing_list.txt", *(f"{word}/cc33_nohash_0.wav" for word in ("yes", "no", "bed")))
    text(root / "README.md", "not audio")
    return root


def voxceleb1(root: Path):
    lines = []
    for speaker in ("id10001", "id10002"):
        for part, video in ((1, "aaa"), (2, "b-b_"), (3, "ccc")):
            audio(root / "wav" / speaker / video / "00001.wav")
            lines.append(f"{part} {speaker}/{video}/00001.wav")
    text(root / "iden_split.txt", *lines, "1 id10001/gone/00009.wav", "7 id10001/aaa/00001.wav")
    text(root / "veri_test.txt", "1 id10001/aaa/00001.wav id10001/ccc/00001.wav")
    return root


def fluent(root: Path):
    for split, speaker in (("train", "s1"), ("valid", "s2"), ("test", "s3")):
        rows = []
        for number in range(2):
            name = f"wavs/speakers/{speaker}/u{number}.wav"
            audio(root / name)
            rows.append(f'{number},{name},{speaker},"Turn on, please",activate,lights,none')
        head = ",path,speakerId,transcription,action,object,location"
        text(root / "data" / f"{split}_data.csv", head, *rows, f"9,../{speaker}.wav,{speaker},x,a,b,c")
    return root


def iemocap(root: Path):
    for session in range(1, 6):
        scene = f"Ses0{session}F_impro01"
        folder = root / f"Session{session}"
        emotions = {"F000": "neu", "F001": "exc", "M000": "ang", "M001": "xxx", "M002": "sad"}
        judged, said = ["% [START_TIME - END_TIME] TURN_NAME EMOTION [V, A, D]", ""], []
        for number, (turn, emotion) in enumerate(emotions.items()):
            audio(folder / "sentences" / "wav" / scene / f"{scene}_{turn}.wav")
            judged += [
                f"[{number}.0000 - {number}.5000]\t{scene}_{turn}\t{emotion}\t[2.5, 2.5, 2.5]",
                "C-E1:\tNeutral;",
            ]
            said.append(f"{scene}_{turn} [00{number}.0000-00{number}.5000]: Excuse me.")
        text(folder / "dialog" / "EmoEvaluation" / f"{scene}.txt", *judged)
        text(folder / "dialog" / "EmoEvaluation" / f"._{scene}.txt", "resource fork \x00")
        text(folder / "dialog" / "EmoEvaluation" / "Categorical" / f"{scene}_e1.txt", "not this")
        text(folder / "dialog" / "transcriptions" / f"{scene}.txt", *said)
    return root


def folder(root: Path):
    for split in ("train", "test"):
        for name in ("anna/one two.wav", "boris/пять.flac"):
            path = audio(root / split / name)
            text(path.with_suffix(".txt"), "hello  there", f"from {name}")
        text(audio(root / split / "boris/three.ogg").with_suffix(".lab"), "three")
    audio(root / "train" / "silent.wav")
    text(audio(root / "train" / "latin.wav").with_suffix(".txt"), "é", encoding="latin-1")
    return root


def audio_folder(root: Path, kind: str):
    """As Hugging Face's `audiofolder` has it: a table of file_name and transcription in each split."""
    for split in ("train", "validation"):
        audio(root / split / "a.wav")
        rows = {
            "csv": ("file_name,transcription", f"a.wav,from {split}"),
            "jsonl": (f'{{"file_name": "a.wav", "transcription": "from {split}"}}',),
        }
        text(root / split / f"metadata.{kind}", *rows[kind])
    return root


def csv_files(root: Path):
    for split in ("a", "b"):
        audio(root / "wavs" / f"{split}1.wav")
        audio(root / "wavs" / f"{split}2.wav")
        row = f'wavs/{split}1.wav,"hello, ""you""",anna,0.3,x'
        short = f"wavs/{split}2.wav,bye"
        text(root / f"{split}.csv", "file,words,who,length,kind", row, short, ",no audio,,,", "wavs/no.wav,gone,,,")
    return root


def nemo(root: Path):
    for split in ("train", "val"):
        audio(root / "clips" / f"{split}.wav", 1.0)
        rows = [
            {"audio_filepath": f"clips/{split}.wav", "duration": 0.4, "offset": 0.0, "text": "one"},
            {"audio_filepath": f"clips/{split}.wav", "duration": 0.5, "offset": 0.5, "text": "two"},
            {"audio_filepath": f"clips/{split}.wav", "duration": -1, "text": "bad"},
            {"audio_filepath": "clips/none.wav", "duration": 1, "text": "gone"},
        ]
        text(root / f"{split}_manifest.json", *map(json.dumps, rows), "{not json")
    return root


def kaldi(root: Path, command=False):
    for split in ("train", "dev"):
        wav = audio(root / "audio" / f"{split}.wav", 2.0, 8000, 2)
        file = f"sph2pipe {wav} |" if command else str(wav)
        text(root / "data" / split / "wav.scp", f"{split}-A {file}", f"{split}-B {file}")
        text(root / "data" / split / "reco2file_and_channel", f"{split}-A {split} A", f"{split}-B {split} B")
        text(
            root / "data" / split / "segments",
            f"{split}-u1 {split}-A 0.0 0.5",
            f"{split}-u2 {split}-B 0.0 0.5",
            f"{split}-u3 {split}-A 1.0 0.5",
            f"{split}-u4 {split}-C 0.0 0.5",
        )
        text(root / "data" / split / "text", *(f"{split}-u{number} some words {number}" for number in range(1, 5)))
        text(root / "data" / split / "utt2spk", *(f"{split}-u{number} {split}-anna" for number in range(1, 5)))
    return root / "data"


def lhotse(root: Path):
    for split in ("train", "dev"):
        path = audio(root / "rec" / f"{split}.wav", 2.0)
        recording = {"sources": [{"type": "file", "channels": [0], "source": str(path)}], "duration": 2.0}
        said = [
            {"text": "second", "start": 1.0, "speaker": "s"},
            {"text": "first", "start": 0.0, "speaker": f"{split}-s"},
        ]
        cut = {"type": "MonoCut", "start": 0.0, "duration": 2.0, "channel": 0, "recording": recording}
        piped = {**recording, "sources": [{"type": "command", "channels": [0], "source": "rm -rf /"}]}
        rows = [
            {**cut, "id": f"{split}-1", "supervisions": said},
            {**cut, "id": f"{split}-2", "start": 0.5, "duration": 0.5, "supervisions": said[:1]},
            {**cut, "id": f"{split}-3", "type": "MixedCut"},
            {**cut, "id": f"{split}-4", "recording": piped},
        ]
        with gzip.open(root / f"cuts_{split}.jsonl.gz", "wt") as file:
            file.write("".join(json.dumps(row) + "\n" for row in rows))
    return root


def encoded(seconds=0.3, format="FLAC"):
    buffer = io.BytesIO()
    soundfile.write(buffer, tone(seconds), 16000, format=format)
    return buffer.getvalue()


def shard(path: Path, names, seconds=0.3, notes="json"):
    """A tar of samples: a recording and its note each."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, "w") as archive:
        for name in names:
            note = json.dumps({"text": f"text of {name}", "speaker": "s", "kind": "x"}) if notes == "json" else name
            put(archive, f"{name}.flac", encoded(seconds))
            put(archive, f"{name}.{notes}", note.encode())
    return path


def put(archive: tarfile.TarFile, name: str, content: bytes):
    member = tarfile.TarInfo(name)
    member.size = len(content)
    archive.addfile(member, io.BytesIO(content))


def prepare(name, source, to, **options):
    """The splits as manifests, and what was left out of each, by reason."""
    layout = catalog.find(CORPORA, name)
    splits, left_out = {}, {}
    for split, found in layout.read(CorpusPaths(str(source), to), layout.options(**options)).items():
        steps = prepare_split(split, found, to, jobs=1)
        try:
            while True:
                next(steps)
        except StopIteration as end:
            left_out[split] = dict(end.value.left_out)
        splits[split] = open_manifest(to / f"{split}.jsonl", to / "index")
    return splits, left_out
