"""A SentencePiece model as the tokenizer.json that transformers loads; the blank comes behind its pieces."""

from sentencepiece import SentencePieceProcessor
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers

from attune.text.protobuf import content_of

BLANK = "<blank>"
UNKNOWN = "<unk>"
NORMALIZER, CHARACTERS = 3, 2  # the numbers of a model file's field for its normalizer, and in that of its characters


def as_tokenizer(model: bytes) -> Tokenizer:
    """The same pieces under the same numbers, splitting text the same way."""
    processor = SentencePieceProcessor(model_proto=model)
    numbers = range(processor.get_piece_size())
    scores = {processor.id_to_piece(number): processor.get_score(number) for number in numbers}
    # The scores of BPE are the ranks of its merges, those of unigram are log-probabilities.
    is_bpe = all(float(score).is_integer() for score in scores.values())
    if is_bpe:
        vocabulary = {piece: number for number, piece in enumerate(scores)}
        merges = _merges(scores, vocabulary)
        split: models.Model = models.BPE(vocabulary, merges, unk_token=UNKNOWN, fuse_unk=True)
    else:
        split = models.Unigram(list(scores.items()), processor.unk_id())
    tokenizer = Tokenizer(split)
    tokenizer.normalizer = _normalizer(model)
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.decoder = decoders.Metaspace()
    tokenizer.add_special_tokens([AddedToken(BLANK, special=True)])
    return tokenizer


def _merges(scores: dict[str, float], vocabulary: dict[str, int]) -> list[tuple[str, str]]:
    """All pairs that make a piece, in the order in which SentencePiece joins them."""
    merges = []
    for piece in sorted(scores, key=lambda piece: -scores[piece]):
        pairs = ((piece[:cut], piece[cut:]) for cut in range(1, len(piece)))
        known = [pair for pair in pairs if pair[0] in vocabulary and pair[1] in vocabulary]
        merges += sorted(known, key=lambda pair: (vocabulary[pair[0]], vocabulary[pair[1]]))
    return merges


def _normalizer(model: bytes) -> normalizers.Normalizer:
    """What SentencePiece does to a text first: characters are replaced by others, and extra spaces go."""
    characters = content_of(content_of(model, NORMALIZER), CHARACTERS)
    spaces = [normalizers.Replace(Regex(" {2,}"), " "), normalizers.Strip()]
    return normalizers.Sequence([normalizers.Precompiled(characters), *spaces] if characters else spaces)
