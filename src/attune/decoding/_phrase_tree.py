"""Phrases as a prefix tree over the bytes of their text, and how a model's tokens lead through it.

Matching bytes instead of token ids finds a phrase in whatever way it is tokenized, and folded letters find it in
whatever way it is capitalized. A phrase begins and ends where words do: in scripts without spaces, anywhere. Where a
match breaks off, a link leads to the longest part of it that may still begin another phrase, as in Aho and Corasick's
automaton.
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

UNSPACED_BYTES = range(0xE3, 0xEA)  # first bytes of U+3000 to U+9FFF: of a character that tokens have in parts


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
    edge = _edge(surface, first)
    return edge is not None and (not edge.isalnum() or UNSPACED.match(edge) is not None)


def _edge(surface: bytes, first: bool) -> str | None:
    """The first or last character; None where that is a part of one, unless its first byte says enough."""
    try:
        return surface.decode()[0 if first else -1]
    except UnicodeDecodeError:
        byte = surface[0 if first else -1]
        if byte < 0x80:
            return chr(byte)
        return "\u4e00" if first and byte in UNSPACED_BYTES else None


def _after_break(surface: bytes) -> bytes:
    """The bytes without the space or sign that they begin with."""
    edge = _edge(surface, first=True)
    return surface if edge is None or UNSPACED.match(edge) else surface[len(edge.encode()) :]


@dataclass(frozen=True, slots=True)
class PhraseTree:
    """The nodes of a list of phrases. A node's potential is what its match is worth so far, while it lasts."""

    worths: list[float] = field(default_factory=list)  # of each phrase
    potentials: list[float] = field(default_factory=lambda: [0.0, 0.0])  # (M,)
    owners: list[int] = field(default_factory=lambda: [NONE, NONE])  # (M,) the phrase whose share that is
    complete: list[tuple[int, ...]] = field(default_factory=lambda: [(), ()])  # (M,) phrases that end here
    at_boundary: list[bool] = field(default_factory=lambda: [False, True])  # (M,) a word may begin here
    may_begin: list[bool] = field(default_factory=lambda: [False, False])  # (M,) another phrase may, with the last byte
    edges: list[dict[int, int]] = field(default_factory=lambda: [{}, {}])  # (M,) token → node
    begins: dict[int, int] = field(default_factory=dict)  # token → node, where a word may begin
    anew: dict[int, int] = field(default_factory=dict)  # token → node, anywhere


def grow_tree(phrases: Sequence[str], texts: TokenTexts, bonus: float) -> PhraseTree:
    """The tree of these phrases, each worth `bonus` for each of its characters; one that cannot be written is refused.

    The potential of a part of a phrase is its share of the bonus.
    """
    keys = {folded(phrase): phrase for phrase in phrases}
    for key, phrase in keys.items():
        if not key:
            raise ModelError(f"phrases: {phrase!r} is empty. Remove it.")
        if texts.unwritable(key):
            raise ModelError(
                f"phrases: {phrase!r} has characters that this model's tokens do not have. Spell it as in the "
                "training text."
            )
    tree, children, ends = PhraseTree(), defaultdict[int, dict[int, int]](dict), dict[int, int]()
    for number, key in enumerate(keys):
        tree.worths.append(bonus * len(key.decode().replace(" ", "")))
        ends[_add(tree, children, key)] = number
    tree.begins.update(_tokens(children, BOUNDARY, texts.within, texts.longest))
    tree.anew.update(_tokens(children, BOUNDARY, texts.anew, texts.longest))
    for node, link in _links(tree, children):
        # A match may hold others: it is worth as much as the best of them, and ends where they end.
        _raise_potential(tree, node, tree.potentials[link], tree.owners[link])
        tree.complete[node] = (*tree.complete[link], *([ends[node]] if node in ends else []))
        tree.edges[node] = {**tree.edges[link], **dict(_tokens(children, node, texts.within, texts.longest))}
    return tree


def _add(tree: PhraseTree, children: dict[int, dict[int, int]], key: bytes) -> int:
    """Add a phrase; returns its last node."""
    node, boundaries, starts = BOUNDARY, *_places(key.decode())
    for place, byte in enumerate(key, start=1):
        may_begin = place - 1 in starts
        if byte not in children[node]:
            children[node][byte] = len(tree.potentials)
            tree.potentials.append(0.0)
            tree.owners.append(NONE)
            tree.complete.append(())
            tree.at_boundary.append(place in boundaries)
            tree.may_begin.append(may_begin)
            tree.edges.append({})
        node = children[node][byte]
        tree.may_begin[node] &= may_begin
        _raise_potential(tree, node, tree.worths[-1] * place / len(key), len(tree.worths) - 1)
    return node


def _places(text: str) -> tuple[set[int], set[int]]:
    """The places in a phrase's bytes after which a word may begin, and those where another phrase may begin in it."""
    boundaries, starts, place, is_boundary = set[int](), set[int](), 0, False
    for one in text:
        if is_boundary or UNSPACED.match(one):
            starts.add(place)
        place += len(one.encode())
        is_boundary = not one.isalnum() or UNSPACED.match(one) is not None
        if is_boundary:
            boundaries.add(place)
    return boundaries, starts


def _raise_potential(tree: PhraseTree, node: int, potential: float, owner: int) -> None:
    if potential > tree.potentials[node]:
        tree.potentials[node], tree.owners[node] = potential, owner


def _links(tree: PhraseTree, children: Mapping[int, Mapping[int, int]]) -> Iterator[tuple[int, int]]:
    """Each node, the nearest to the root first, with that of the longest end of its match that may begin another."""
    links: dict[int, int] = {}
    waiting = [BOUNDARY]
    for node in waiting:
        for byte, child in children.get(node, {}).items():
            waiting.append(child)
            link = links.get(node, INSIDE)
            while link > BOUNDARY and byte not in children.get(link, {}):
                link = links[link]
            if link <= BOUNDARY:
                root = BOUNDARY if tree.at_boundary[child] else INSIDE
                begun = children[BOUNDARY].get(byte, root) if node != BOUNDARY and tree.may_begin[child] else root
            links[child] = children[link][byte] if link > BOUNDARY else begun
            yield child, links[child]


def _tokens(
    children: Mapping[int, Mapping[int, int]], node: int, written: Mapping[bytes, Sequence[int]], longest: int
) -> Iterator[tuple[int, int]]:
    """The tokens that can be read from a node on, and where they lead."""
    return ((token, to) for text, to in _reached(children, node, longest) for token in written.get(text, ()))


def _reached(children: Mapping[int, Mapping[int, int]], node: int, longest: int) -> Iterator[tuple[bytes, int]]:
    """What can be read from a node on, up to so many bytes, and where that leads."""
    waiting = [(b"", node)]
    while waiting:
        text, here = waiting.pop()
        if text:
            yield text, here
        if len(text) < longest:
            waiting += [(text + bytes([byte]), to) for byte, to in children.get(here, {}).items()]
