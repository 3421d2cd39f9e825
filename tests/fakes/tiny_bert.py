"""A real, tiny encoder of BERT layout with a word-level tokenizer; the same weights every time."""

import torch
from tokenizers import Tokenizer, pre_tokenizers
from tokenizers.models import WordLevel
from transformers import BertConfig, BertModel, PreTrainedTokenizerFast

from geartrain.preferences.pairs import Pair

WORDS = ("good", "bad", "report", "error", "query", "january", "revenue", "orders", "done", "lost", *"abcdefgh")


def make_encoder(*, layers=3, hidden=32, positions=64, pad_is_sep=False):
    """Return (encoder, tokenizer). With `pad_is_sep` the padding id also ends every segment."""
    vocabulary = {word: i for i, word in enumerate(["[PAD]", "[UNK]", "[CLS]", "[SEP]", ";", "=", *WORDS])}
    tokenizer = Tokenizer(WordLevel(vocabulary, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    wrapped = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token="[SEP]" if pad_is_sep else "[PAD]",
        unk_token="[UNK]",
        cls_token="[CLS]",
        sep_token="[SEP]",
    )
    config = BertConfig(
        vocab_size=len(vocabulary),
        hidden_size=hidden,
        num_hidden_layers=layers,
        num_attention_heads=2,
        intermediate_size=2 * hidden,
        max_position_embeddings=positions,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return BertModel(config).eval(), wrapped


def save_encoder(folder, **options):
    """Write such an encoder as a folder and return the folder."""
    encoder, tokenizer = make_encoder(**options)
    encoder.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def make_pairs(train=24, validation=8):
    """Pairs of which the chosen says "good" where the rejected says "bad"; lengths tell nothing."""
    pairs = []
    for i in range(train + validation):
        filler = " ".join("abcdefgh"[(i + k) % 8] for k in range(i % 5))
        chosen, rejected = (f"query {filler} ; {word}\nreport = {'abc'[i % 3]} ; done" for word in ("good", "bad"))
        split = "train" if i < train else "validation"
        pairs.append(Pair(f"t{i}", "ab"[i % 2], split, f"report {'abcdefgh'[i % 8]}", chosen, rejected, 1.0, "x", "y"))
    return pairs
