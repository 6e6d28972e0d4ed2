"""Phrases as a prefix tree over the bytes of their text, and how a model's tokens lead through it.

Matching bytes instead of token ids finds a phrase in whatever way it is tokenized, and folded letters find it in
whatever way it is capitalized. A phrase begins and ends where words do. Where a match breaks off, a link leads to the
longest part of it that may still begin another phrase, as in Aho and Corasick's automaton.
"""

# M nodes, T tokens
from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from attune.errors import ModelError

NONE = -1
INSIDE, BOUNDARY = 0, 1  # nodes without a match: within a word, and where a word may begin
SPECIAL = re.compile(r"<(?!0x[0-9A-F]{2}>)[^<>]+>|\[[A-Z]+\]")  # <unk>, </s>, <|0.00|>, [PAD]
BYTE = re.compile(r"<0x([0-9A-F]{2})>")
# Scripts that put no space between words: Thai to Khmer, kana and ideographs, their extensions.
UNSPACED = re.compile("[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\U00020000-\U0003ffff]")


def _byte_alphabet() -> dict[str, int]:
    """How byte-level BPE writes bytes: printable ones as they are, the others from U+0100 on."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in printable]
    return {chr(byte): byte for byte in printable} | {chr(256 + place): byte for place, byte in enumerate(others)}


@dataclass(frozen=True, eq=False)
class TokenTexts:
    """What every token writes: bytes of folded letters, and None for one that writes nothing."""

    pieces: Sequence[str]

    @cached_property
    def surfaces(self) -> tuple[bytes | None, ...]:
        """The bytes of each token, by id."""
        is_byte_level = any(piece.startswith("Ġ") for piece in self.pieces)
        alphabet = _byte_alphabet() if is_byte_level else None
        return tuple(_surface(piece, alphabet) for piece in self.pieces)

    @cached_property
    def starts(self) -> tuple[bool, ...]:
        """Whether a token ends the word before it: it begins with a space or a sign, or writes nothing."""
        return tuple(surface is None or _is_break(surface, first=True) for surface in self.surfaces)

    @cached_property
    def stops(self) -> tuple[bool, ...]:
        """Whether a word may begin after a token."""
        return tuple(surface is None or _is_break(surface, first=False) for surface in self.surfaces)

    @cached_property
    def within(self) -> Mapping[bytes, Sequence[int]]:
        """The tokens that go on with these bytes."""
        found = defaultdict(list)
        for token, surface in enumerate(self.surfaces):
            if surface:
                found[surface].append(token)
        return found

    @cached_property
    def anew(self) -> Mapping[bytes, Sequence[int]]:
        """The tokens that begin a word with these bytes, wherever they stand: after a space of their own."""
        found = defaultdict(list)
        for token, surface in enumerate(self.surfaces):
            if surface and self.starts[token]:
                found[_after_break(surface)].append(token)
        return found

    @cached_property
    def longest(self) -> int:
        """The most bytes of a token."""
        return max(len(surface) for surface in self.surfaces if surface)

    def unwritable(self, text: bytes) -> bool:
        """Whether no sequence of tokens writes this."""
        reached = {0}
        for place in range(len(text)):
            if place in reached:
                known = self.anew if place == 0 else {}
                reached |= {
                    place + size
                    for size in range(1, self.longest + 1)
                    if text[place : place + size] in self.within or text[place : place + size] in known
                }
        return len(text) not in reached


def folded(text: str) -> bytes:
    """A phrase as it is looked for: single spaces, letters in one case."""
    return " ".join(text.split()).casefold().encode()


def _surface(piece: str, alphabet: Mapping[str, int] | None) -> bytes | None:
    if byte := BYTE.fullmatch(piece):
        return bytes([int(byte[1], 16)])
    if SPECIAL.fullmatch(piece) or not piece:
        return None
    raw = bytes(alphabet[one] for one in piece) if alphabet else piece.replace("▁", " ").encode()
    try:
        return raw.decode().casefold().encode()
    except UnicodeDecodeError:  # a part of a character
        return raw


def _is_break(surface: bytes, first: bool) -> bool:
    try:
        text = surface.decode()
    except UnicodeDecodeError:
        return False
    edge = text[0 if first else -1]
    return not edge.isalnum() or UNSPACED.match(edge) is not None


def _after_break(surface: bytes) -> bytes:
    """The bytes without the space or sign that they begin with."""
    text = surface.decode()
    return surface if UNSPACED.match(text) else text[1:].encode()


@dataclass(frozen=True, slots=True)
class PhraseTree:
    """The nodes of a list of phrases. A node's potential is what its match is worth so far, while it lasts."""

    worths: list[float] = field(default_factory=list)  # of each phrase
    potentials: list[float] = field(default_factory=lambda: [0.0, 0.0])  # (M,)
    owners: list[int] = field(default_factory=lambda: [NONE, NONE])  # (M,) the phrase whose share that is
    complete: list[tuple[int, ...]] = field(default_factory=lambda: [(), ()])  # (M,) phrases that end here
    at_boundary: list[bool] = field(default_factory=lambda: [False, True])  # (M,) a word may begin here
    edges: list[dict[int, int]] = field(default_factory=lambda: [{}, {}])  # (M,) token → node
    begins: dict[int, int] = field(default_factory=dict)  # token → node, where a word may begin
    anew: dict[int, int] = field(default_factory=dict)  # token → node, anywhere


def grow_tree(phrases: Sequence[str], texts: TokenTexts, bonus: float) -> PhraseTree:
    """The tree of these phrases, each worth `bonus` for each of its characters; one that cannot be written is refused.

    The potential of a part of a phrase is its share of the bonus.
    """
    keys = {folded(phrase): phrase for phrase in phrases}
    for key, phrase in keys.items():
        if not key or texts.unwritable(key):
            raise ModelError(
                f"phrases: {phrase!r} has characters that this model's tokens do not have. Spell it as in the "
                "training text."
            )
    tree, paths = PhraseTree(), {b"": BOUNDARY}
    children: dict[int, dict[int, int]] = defaultdict(dict)
    for key in keys:
        tree.worths.append(bonus * len(key.decode().replace(" ", "")))
        _add(tree, paths, children, key)
    ends = {key: number for number, key in enumerate(keys)}
    for path in sorted(filter(None, paths), key=len):
        _link(tree, paths, path, ends)
    for path, node in sorted(paths.items(), key=lambda each: len(each[0])):
        reached = list(_reached(children, node, texts.longest))
        if node == BOUNDARY:
            tree.begins.update((token, to) for text, to in reached for token in texts.within.get(text, ()))
            tree.anew.update((token, to) for text, to in reached for token in texts.anew.get(text, ()))
        else:
            linked = tree.edges[_linked(paths, path)]
            own = {token: to for text, to in reached for token in texts.within.get(text, ())}
            tree.edges[node].update({**linked, **own})
    return tree


def _add(tree: PhraseTree, paths: dict[bytes, int], children: dict[int, dict[int, int]], key: bytes) -> None:
    node = BOUNDARY
    for place, byte in enumerate(key, start=1):
        if byte not in children[node]:
            children[node][byte] = paths[key[:place]] = len(tree.potentials)
            tree.potentials.append(0.0)
            tree.owners.append(NONE)
            tree.complete.append(())
            tree.at_boundary.append(key[place - 1 : place] == b" ")
            tree.edges.append({})
        node = children[node][byte]
        _raise_potential(tree, node, tree.worths[-1] * place / len(key), len(tree.worths) - 1)


def _raise_potential(tree: PhraseTree, node: int, potential: float, owner: int) -> None:
    if potential > tree.potentials[node]:
        tree.potentials[node], tree.owners[node] = potential, owner


def _linked(paths: Mapping[bytes, int], path: bytes) -> int:
    """The node of the longest part at the end of a path that is a path itself, from the beginning of a word."""
    tails = (path[place + 1 :] for place in range(len(path)) if path[place : place + 1] == b" ")
    return next((paths[tail] for tail in tails if tail in paths), INSIDE)


def _link(tree: PhraseTree, paths: Mapping[bytes, int], path: bytes, ends: Mapping[bytes, int]) -> None:
    """A match may hold others: it is worth as much as the best of them, and ends where they end."""
    node, link = paths[path], _linked(paths, path)
    _raise_potential(tree, node, tree.potentials[link], tree.owners[link])
    tree.complete[node] = (*tree.complete[link], *([ends[path]] if path in ends else []))


def _reached(children: Mapping[int, Mapping[int, int]], node: int, longest: int) -> Iterator[tuple[bytes, int]]:
    """What can be read from a node on, up to so many bytes, and where that leads."""
    waiting = [(b"", node)]
    while waiting:
        text, here = waiting.pop()
        if text:
            yield text, here
        if len(text) < longest:
            waiting += [(text + bytes([byte]), to) for byte, to in children.get(here, {}).items()]
