"""Small corpora in the layouts of the tasks, made of tones and noise: every voice is a set of formants."""

import json

import numpy as np
import soundfile

from attune.corpora import open_corpus
from attune.testing.data import DIGITS, speak
from attune.types import SAMPLE_RATE

TYPES = {"one": "small", "two": "small", "eight": "big", "nine": "big"}  # the slots of some words


def write(folder, name, rows):
    """A manifest of the rows; returns its path."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def utterances_of(path):
    return list(open_corpus("train", [path], path.parent / "index"))


def save(folder, name, samples):
    folder.mkdir(parents=True, exist_ok=True)
    soundfile.write(folder / f"{name}.wav", samples.astype(np.float32), SAMPLE_RATE, subtype="FLOAT")
    return f"{name}.wav"


def voice(speaker, seconds, seed):
    """Syllables of noise through resonances that are the speaker's own, over a little other noise.

    Silence in between keeps the resonances from going away when features are normalized by utterance.
    """
    formants = np.random.default_rng(1000 + speaker).uniform([250, 900, 2000], [850, 1900, 3800])
    random = np.random.default_rng([seed, speaker])
    size = int(seconds * SAMPLE_RATE)
    spectrum = np.fft.rfft(random.normal(0, 1, size))
    hertz = np.fft.rfftfreq(size, 1 / SAMPLE_RATE)
    shape = sum(np.exp(-(((hertz - each) / 120) ** 2)) for each in formants)
    sound = np.fft.irfft(spectrum * shape, size)
    times = np.arange(size) / SAMPLE_RATE
    level = np.sin(2 * np.pi * (random.uniform(2, 4) * times + random.random())) > -0.4
    return 0.1 * sound / sound.std() * level + random.normal(0, 1e-3, size)


def words(folder, name, count, seed, pitches=(0.9, 1.0, 1.1)):
    """One to three digits each, with the slots of some of them."""
    random = np.random.default_rng(seed)
    rows = []
    for number in range(count):
        text = [str(word) for word in random.choice(DIGITS, random.integers(1, 4))]
        pitch = float(random.choice(pitches))
        samples = speak(" ".join(text), seed=seed * 1000 + number, pitch=pitch)
        tags = " ".join(f"B-{TYPES[word]}" if word in TYPES else "O" for word in text)
        file = save(folder, f"{name}-{number}", samples)
        rows.append({"id": f"{name}-{number}", "audio": file, "text": " ".join(text), "labels": {"slots": tags}})
    return write(folder, name, rows)


def speakers(folder, name, who, each, seed, seconds=(0.5, 1.2)):
    """Several utterances of each speaker."""
    random = np.random.default_rng(seed)
    rows = []
    for speaker in who:
        for number in range(each):
            id = f"{name}-{speaker}-{number}"
            samples = voice(speaker, random.uniform(*seconds), seed * 1000 + number)
            rows.append({"id": id, "audio": save(folder, id, samples), "speaker": f"s{speaker}"})
    return write(folder, name, rows)


def conversations(folder, name, count, seed, who=range(8)):
    """Two speakers who talk in turn, at times together, at times not at all."""
    random = np.random.default_rng(seed)
    rows = []
    for number in range(count):
        pair = random.choice(list(who), 2, replace=False)
        size = int(2.4 * SAMPLE_RATE)
        mixed, segments = np.random.default_rng(number).normal(0, 1e-3, size), []
        for order, speaker in enumerate(pair):
            for start in (0.1 + 0.6 * order, 1.3 + 0.5 * order):
                end = start + float(random.uniform(0.4, 0.7))
                first, last = int(start * SAMPLE_RATE), min(size, int(end * SAMPLE_RATE))
                mixed[first:last] += voice(int(speaker), end - start, seed + number)[: last - first]
                segments.append({"start": start, "end": last / SAMPLE_RATE, "speaker": f"s{speaker}"})
        rows.append({"id": f"{name}-{number}", "audio": save(folder, f"{name}-{number}", mixed), "segments": segments})
    return write(folder, name, rows)


def mixtures(folder, name, count, seed, pairs=((0, 1), (2, 3))):
    """Two speakers at once, and each of them alone."""
    random = np.random.default_rng(seed)
    rows = []
    for number in range(count):
        seconds = random.uniform(0.5, 0.9)
        both = [voice(speaker, seconds, seed * 100 + number) for speaker in pairs[number % len(pairs)]]
        files = {
            role: save(folder, f"{name}-{number}-{role}", each) for role, each in zip(("s1", "s2"), both, strict=True)
        }
        mixed = save(folder, f"{name}-{number}", sum(both))
        rows.append({"id": f"{name}-{number}", "audio": mixed, "signals": files})
    return write(folder, name, rows)


def noisy(folder, name, count, seed):
    """Speech of tones with noise over it, and without."""
    random = np.random.default_rng(seed)
    rows = []
    for number in range(count):
        clean = speak(" ".join(random.choice(DIGITS, 2)), seed=seed * 100 + number, pitch=random.uniform(0.8, 1.2))
        mixed = clean + random.normal(0, 0.1, len(clean))
        clean, mixed = save(folder, f"{name}-{number}-clean", clean), save(folder, f"{name}-{number}", mixed)
        rows.append({"id": f"{name}-{number}", "audio": mixed, "signals": {"clean": clean}})
    return write(folder, name, rows)


def translated(folder, name, count, seed):
    """A digit each, and as its translation a sentence of the letters that the word has, backwards."""
    random = np.random.default_rng(seed)
    rows = []
    for number in range(count):
        word = DIGITS[number % len(DIGITS)]
        samples = speak(word, seed=seed * 1000 + number, pitch=random.uniform(0.98, 1.02))
        file = save(folder, f"{name}-{number}", samples)
        translation = " ".join(f"{word}s"[::-1])
        rows.append({"id": f"{name}-{number}", "audio": file, "text": word, "translation": translation})
    return write(folder, name, rows)


def parallel(folder, name, count, seed):
    """Digits in a thin voice, and the same in the target speaker's, which is all there is in training."""
    random = np.random.default_rng(seed)
    rows = []
    for number in range(count):
        text = " ".join(random.choice(DIGITS, 2))
        target = save(folder, f"{name}-{number}-target", speak(text, seed=seed * 100 + number))
        row = {"id": f"{name}-{number}", "audio": target}
        if name != "train":
            thin = np.convolve(speak(text, seed=seed * 100 + number), (1, -0.95))
            other = save(folder, f"{name}-{number}", thin)
            row = {**row, "audio": other, "signals": {"target": target}}
        rows.append(row)
    return write(folder, name, rows)


def searched(folder, name, count, seed):
    """Single digits as queries, documents of several, and a list of which has which."""
    random = np.random.default_rng(seed)
    rows, matches = [], []
    documents = [[str(word) for word in random.choice(DIGITS, 3, replace=False)] for _ in range(count)]
    for role, texts in (("query", [[word] for word in DIGITS[:4]]), ("document", documents)):
        for number, text in enumerate(texts):
            samples = speak(" ".join(text), seed=seed * 100 + number, pitch=random.uniform(0.98, 1.02))
            id = f"{name}-{role}-{number}"
            row = {"id": id, "audio": save(folder, id, samples), "text": " ".join(text)}
            rows.append({**row, "labels": {"role": role}})
    for query, word in enumerate(DIGITS[:4]):
        matches += [f"{name}-query-{query} {name}-document-{n}\n" for n, text in enumerate(documents) if word in text]
    (folder / f"{name}-matches.txt").write_text("".join(matches))
    return write(folder, name, rows)
