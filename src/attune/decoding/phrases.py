"""Phrase boosting: names and terms that are expected, which a beam search then finds more easily.

A hypothesis that has begun a phrase gets a share of its bonus at every token, so that it stays in the beam. Where the
phrase breaks off, all of that is taken back. Where it is complete, at the end of a word, it keeps what it needed, once
for each phrase: as much as its tokens were less probable than the best ones, and hardly more. So texts without any rank
as they would without phrases, and a phrase draws level with what the model would write instead, no further. None is
looked for where the audio speaks against it. A phrase that a hypothesis has had already is worth nothing there, not
even on the way: otherwise one that repeats it would be ahead of all others for as long as it goes on.
"""

# R rows, U utterances, V tokens, L lists of phrases, M nodes, P phrases, E edges of a node, C phrases at a node
from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import torch
import torch.nn.functional as F
from torch import Tensor

from attune.decoding._phrase_tree import BOUNDARY, INSIDE, PhraseTree, TokenTexts, folded, grow_tree
from attune.errors import DataError
from attune.types import Utterance

Phrases = tuple[str, ...]
MOST_TREES, MOST_TABLES = 256, 4
EDGE = 0.5  # log-probability that a phrase keeps beyond what it needed
REACH = 4.0  # log-probability that a token of a phrase may be below the best one


@dataclass(frozen=True, slots=True)
class PhraseRows:
    """Where each row of a beam is: its node, its list of phrases, and the phrases that it has had."""

    nodes: Tensor  # (R,)
    lists: Tensor  # (R,)
    had: Tensor  # (R, P + 1) the last stands for none
    behind: Tensor  # (R,) how much less probable than the best ones the tokens of its match were
    kept: Tensor  # (R,) of the bonuses of those that it has had

    def select(self, rows: Tensor) -> PhraseRows:
        """The rows that continue from these (R,)."""
        return PhraseRows(self.nodes[rows], self.lists[rows], self.had[rows], self.behind[rows], self.kept[rows])


@dataclass(frozen=True)
class PhraseBook:
    """What a search needs to boost phrases: how tokens are written, the bonus, and the phrases of every utterance."""

    texts: TokenTexts = field(repr=False)
    bonus: float  # log-probability for each character
    phrases: Phrases = ()
    reach: float = REACH
    trees: dict[tuple[Phrases, float], PhraseTree] = field(
        default_factory=dict, repr=False, compare=False
    )  # grown so far
    tables: dict[tuple[object, ...], PhraseTables] = field(default_factory=dict, repr=False, compare=False)

    def booster(self, own: Sequence[Phrases], device: torch.device) -> PhraseBooster | None:
        """For a batch whose utterances have these phrases of their own; None where there are none at all."""
        lists = [tuple(dict.fromkeys((*self.phrases, *each))) for each in own]
        if not any(lists):
            return None
        known = list(dict.fromkeys(lists))
        if len(self.trees) > MOST_TREES:  # a server is asked for ever new ones
            self.trees.clear()
        for each in known:
            if (each, self.bonus) not in self.trees:
                self.trees[each, self.bonus] = grow_tree(each, self.texts, self.bonus)
        which = torch.tensor([known.index(each) for each in lists], device=device)
        return PhraseBooster(self._tables_of(known, device), which, self.reach)

    def _tables_of(self, known: Sequence[Phrases], device: torch.device) -> PhraseTables:
        """Mostly all batches have the same phrases, and thousands of them take a second to write down."""
        place = (*known, self.bonus, device)
        found = self.tables.get(place)
        if found is None:
            found = PhraseTables([self.trees[each, self.bonus] for each in known], self.texts, device)
            if len(self.tables) >= MOST_TABLES:
                self.tables.clear()
            self.tables[place] = found
        return found


def require_writable(book: PhraseBook, utterances: Iterable[Utterance]) -> None:
    """Refuse an utterance with a phrase that this model's tokens cannot write, before anything is decoded."""
    known: set[str] = set()
    for utterance in utterances:
        for phrase in utterance.phrases:
            if phrase not in known and book.texts.unwritable(folded(phrase)):
                raise DataError(
                    f"{utterance.where}: utterance {utterance.id!r} has the phrase {phrase!r}, with characters that "
                    "this model's tokens do not have. Spell it as in the training text, or remove it from the row."
                )
            known.add(phrase)


class PhraseTables:
    """The trees of some lists of phrases as tensors; INSIDE and BOUNDARY are nodes of all of them."""

    def __init__(self, trees: Sequence[PhraseTree], texts: TokenTexts, device: torch.device) -> None:
        self.trees, self.texts, self.device = trees, texts, device
        self.firsts: list[int] = []  # the node before each tree's own, of which 2 is the first
        self.counts: list[int] = []  # phrases before each tree's own
        nodes = phrases = 0
        for tree in trees:
            self.firsts.append(nodes)
            self.counts.append(phrases)
            nodes, phrases = nodes + len(tree.potentials) - 2, phrases + len(tree.worths)
        self.phrases = phrases
        self.potentials = self._tensor([0.0, 0.0], [tree.potentials[2:] for tree in trees])  # (M,)
        self.at_boundary = self._tensor([False, True], [tree.at_boundary[2:] for tree in trees])  # (M,)
        self.worths = torch.tensor([*(each for tree in trees for each in tree.worths), 0.0], device=device)  # (P + 1,)
        self.is_break = torch.tensor(texts.starts, device=device)  # (V,)
        owners = [
            phrases if each < 0 else each + before
            for tree, before in zip(trees, self.counts, strict=True)
            for each in tree.owners[2:]
        ]
        self.owners = torch.tensor([phrases, phrases, *owners], device=device)  # (M,) P stands for none

    @cached_property
    def plain(self) -> Tensor:
        """Where a token leads that matches nothing (V,)."""
        return torch.where(torch.tensor(self.texts.stops, device=self.device), BOUNDARY, INSIDE)

    @cached_property
    def defaults(self) -> Tensor:
        """Where a token leads that goes on with no match (L, 2, V): within a word, and where a word may begin."""
        tables = self.plain.repeat(len(self.trees), 2, 1)
        for number, tree in enumerate(self.trees):
            for table, found in ((0, tree.anew), (1, {**tree.anew, **tree.begins})):
                self._fill(tables[number, table], found, number)
        return tables

    def _fill(self, table: Tensor, found: dict[int, int], number: int) -> None:
        if found:
            tokens, nodes = (torch.tensor(list(each), device=self.device) for each in (found, found.values()))
            table[tokens] = torch.where(nodes < 2, nodes, nodes + self.firsts[number])

    @cached_property
    def edges(self) -> tuple[Tensor, Tensor]:
        """The tokens that go on with a node's match, and where they lead (M, E); V stands for none."""
        found: list[dict[int, int]] = [{}, {}]
        for tree, first in zip(self.trees, self.firsts, strict=True):
            found += [{token: to + first if to > 1 else to for token, to in each.items()} for each in tree.edges[2:]]
        most = max(1, *map(len, found))
        none = len(self.is_break)
        tokens = [[*each, *[none] * (most - len(each))] for each in found]
        nodes = [[*each.values(), *[INSIDE] * (most - len(each))] for each in found]
        return torch.tensor(tokens, device=self.device), torch.tensor(nodes, device=self.device)

    @cached_property
    def complete(self) -> Tensor:
        """The phrases that end at a node (M, C); P stands for none."""
        found: list[list[int]] = [[], []]
        for tree, before in zip(self.trees, self.counts, strict=True):
            found += [[number + before for number in each] for each in tree.complete[2:]]
        most = max(1, *map(len, found))
        return torch.tensor([[*each, *[self.phrases] * (most - len(each))] for each in found], device=self.device)

    def _tensor(self, common: Sequence[float], own: Sequence[Sequence[float]]) -> Tensor:
        return torch.tensor([*common, *(value for each in own for value in each)], device=self.device)


@dataclass(frozen=True, slots=True)
class PhraseBooster:
    """The phrases of a batch, for the rows of its beam: as many in a row for each utterance.

    A token that is far below the best one matches nothing. A CTC beam refuses it instead (`refuses_far`) where a phrase
    would have it: a prefix has one match, that of its first frame, and its letters may be near at a later one.
    """

    tables: PhraseTables
    lists: Tensor  # (U,)
    reach: float
    refuses_far: bool = False

    def of(self, utterances: Tensor) -> PhraseBooster:
        """Those of some utterances, in this order."""
        return replace(self, lists=self.lists[utterances])

    def start(self, rows: int) -> PhraseRows:
        """Rows before any token."""
        lists = self.lists.repeat_interleave(rows // max(1, len(self.lists)))
        had = torch.zeros(rows, self.tables.phrases + 1, dtype=torch.bool, device=lists.device)
        none = torch.zeros(rows, device=lists.device)
        return PhraseRows(torch.full_like(lists, BOUNDARY), lists, had, none, none)

    def bonuses(self, rows: PhraseRows, log_probs: Tensor) -> Tensor:
        """What each token would add to each row (R, V), of which the model itself thinks so (R, V).

        A phrase is not looked for where the audio speaks against it: none of its tokens may be far below the best one.
        """
        tables = self.tables
        is_far = self._is_far(log_probs.amax(1, keepdim=True) - log_probs)
        after = self._after(rows, is_far)
        ended = self._ended(rows)
        is_break = tables.is_break | tables.at_boundary[rows.nodes][:, None]  # (R, V)
        is_had = torch.where(is_break, _had(ended, tables.owners[after]), _had(rows.had, tables.owners[after]))
        potentials = tables.potentials[after].masked_fill(is_had, 0)
        gains = potentials + self._kept(rows)[:, None] * is_break
        vocabulary = log_probs.shape[1]
        missing = vocabulary - gains.shape[1]  # they write nothing, such as timestamps
        if missing > 0:
            gains = torch.cat([gains, self._kept(rows)[:, None].expand(-1, missing)], 1)
            potentials = F.pad(potentials, (0, missing))
        gains = gains[:, :vocabulary] - self._potentials(rows)[:, None]
        if not self.refuses_far:
            return gains
        return gains.masked_fill(is_far & (potentials[:, :vocabulary] > 0), -torch.inf)

    def _is_far(self, gaps: Tensor) -> Tensor:
        return gaps > self.reach

    def _after(self, rows: PhraseRows, is_far: Tensor) -> Tensor:
        """Where each token would lead each row (R, V), of which some are far below the best one."""
        tables = self.tables
        after = tables.defaults[rows.lists, tables.at_boundary[rows.nodes].long()]
        tokens, nodes = (each[rows.nodes] for each in tables.edges)  # (R, E)
        after = F.pad(after, (0, 1)).scatter(1, tokens, nodes)[:, :-1]
        if not self.refuses_far:
            known = min(after.shape[1], is_far.shape[1])
            after[:, :known] = torch.where(is_far[:, :known], tables.plain[:known], after[:, :known])
        return after

    def advance(self, rows: PhraseRows, tokens: Tensor, is_emitted: Tensor, gaps: Tensor) -> PhraseRows:
        """The rows after one more token each (R,), where one is emitted (R,), so far below the best one (R,)."""
        tables, last = self.tables, len(self.tables.is_break) - 1
        known = tokens.clamp(max=last)
        is_break = tables.is_break[known] | tables.at_boundary[rows.nodes] | (tokens > last)
        default = tables.defaults[rows.lists, tables.at_boundary[rows.nodes].long(), known]
        default = default.masked_fill(tokens > last, BOUNDARY)
        edges, targets = (each[rows.nodes] for each in tables.edges)
        is_edge = edges == tokens[:, None]
        nodes = torch.where(is_edge.any(1), (targets * is_edge).sum(1), default)
        if not self.refuses_far:
            plain = tables.plain[known].masked_fill(tokens > last, BOUNDARY)
            nodes = torch.where(self._is_far(gaps), plain, nodes)
        is_ended = (is_emitted & is_break)[:, None]
        had = torch.where(is_ended, self._ended(rows), rows.had)
        kept = rows.kept + self._kept(rows) * is_ended[:, 0]
        # A match that a token begins anew owes nothing to what was before it.
        before = rows.behind.masked_fill(~is_edge.any(1) | (tables.potentials[rows.nodes] == 0), 0)
        behind = (before + gaps).masked_fill(tables.potentials[nodes] == 0, 0)
        nodes, behind = torch.where(is_emitted, nodes, rows.nodes), torch.where(is_emitted, behind, rows.behind)
        return PhraseRows(nodes, rows.lists, had, behind, kept)

    def total(self, rows: PhraseRows) -> Tensor:
        """All that each row has gained so far (R,), and not had to give back."""
        return rows.kept + self._potentials(rows)

    def finish(self, rows: PhraseRows) -> Tensor:
        """What the end adds to each row (R,): the phrase at its end stays, one that has only begun does not."""
        return self._kept(rows) - self._potentials(rows)

    def _ended(self, rows: PhraseRows) -> Tensor:
        """What each row has had (R, P + 1) if the word ends here; none is never had."""
        return rows.had.scatter(1, self.tables.complete[rows.nodes], True).index_fill(
            1, torch.tensor([self.tables.phrases], device=rows.had.device), False
        )

    def _potentials(self, rows: PhraseRows) -> Tensor:
        """What the match of each row is worth so far (R,)."""
        owners = self.tables.owners[rows.nodes][:, None]
        return self.tables.potentials[rows.nodes].masked_fill(_had(rows.had, owners)[:, 0], 0)

    def _kept(self, rows: PhraseRows) -> Tensor:
        """What each row would keep of the phrases that end here (R,), if the word ended too."""
        ended = self.tables.complete[rows.nodes]  # (R, C)
        worths = self.tables.worths[ended].masked_fill(rows.had.gather(1, ended), 0).sum(1)
        return worths.minimum(rows.behind + EDGE)


def _had(had: Tensor, phrases: Tensor) -> Tensor:
    """Whether the rows (R, P + 1) have had these phrases (R, …)."""
    return had.gather(1, phrases)
