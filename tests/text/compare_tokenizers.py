#!/usr/bin/env python3
"""Compares token ids with those of tiktoken and tokenizers, on much text and on many strings made to break them.

    pip install numpy tiktoken==0.14.0 tokenizers==0.23.3      (in a virtual environment)
    tests/text/compare_tokenizers.py build/tests/text/tokenize_stream --text FILE --gpt2 FOLDER --work FOLDER

FILE holds text in UTF-8, documents parted by lines <|endoftext|>. The folder of GPT-2 holds vocab.json, merges.txt and
r50k_base.tiktoken. What is trained and written goes to --work. One line is printed a comparison; the status is 1 where
any id differs.

Compared are: GPT-2's two files, LLaMA 3's way (trained here), a tokenizer with digits apart, added tokens and a pattern
that goes through PCRE2, each with tokenizers; r50k_base, and the patterns of cl100k_base and o200k_base on its ranks,
with tiktoken; and what is exported of them, read by tokenizers. Special tokens in text are text everywhere.

Half of the strings are UTF-8, and go to the libraries as they are. The other half has bytes that are none, which the
libraries do not take: a U+FFFD stands for each of them while the library cuts the string into words, and then the
library encodes the bytes of each word.
"""
import argparse
import pathlib
import random
import struct
import subprocess
import sys

import numpy as np
import tiktoken
import tiktoken.load
import tiktoken_ext.openai_public
import tokenizers
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

CONTRACTION = "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
LLAMA3 = (CONTRACTION + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
          r"|\s+(?!\S)|\s+")
GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
CL100K = LLAMA3.replace(r"|\s*[\r\n]+", r"|\s+\z|\s*[\r\n]+")
O200K = "|".join([
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+" + CONTRACTION + "?",
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*" + CONTRACTION + "?",
    r"\p{N}{1,3}", r" ?[^\s\p{L}\p{N}]+[\r\n/]*", r"\s*[\r\n]+", r"\s+(?!\S)", r"\s+"])
# A pattern that nobody has, of classes that all Unicode versions share.
OTHER = r"[A-Za-z]+[ \n]*|[0-9]{2}|[^A-Za-z0-9]{1,5}"


def byte_alphabet():
    prints = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [b for b in range(256) if b not in prints]
    return {**{b: chr(b) for b in prints}, **{b: chr(256 + i) for i, b in enumerate(others)}}


ALPHABET = byte_alphabet()


class HuggingFace:
    """A Tokenizer of tokenizers, without its special tokens in text."""

    def __init__(self, tokenizer):
        self.tokenizer = tokenizer
        tokenizer.encode_special_tokens = True

    def encode_many(self, texts):
        for begin in range(0, len(texts), 4096):
            for encoding in self.tokenizer.encode_batch_fast(texts[begin:begin + 4096], add_special_tokens=False):
                yield encoding.ids

    def encode_words(self, repaired, spans):
        ids = []
        for _, (begin, end) in self.tokenizer.pre_tokenizer.pre_tokenize_str(repaired):
            word = b"".join(spans[begin:end])
            ids += [t.id for t in self.tokenizer.model.tokenize("".join(ALPHABET[b] for b in word))]
        return ids


class Tiktoken:
    def __init__(self, name, pattern, ranks, splitting):
        self.encoding = tiktoken.Encoding(name, pat_str=pattern, mergeable_ranks=ranks, special_tokens={})
        # Of the same Unicode version, by the test of the strings that are UTF-8.
        self.split = pre_tokenizers.Split(Regex(splitting), "isolated")

    def encode_many(self, texts):
        return map(self.encoding.encode_ordinary, texts)

    def encode_words(self, repaired, spans):
        ids = []
        for _, (begin, end) in self.split.pre_tokenize_str(repaired):
            ids += self.encoding._core_bpe.encode_single_piece(b"".join(spans[begin:end]))
        return ids


def ours(tool, path, texts, work):
    """The ids of each text."""
    with open(work / "texts.bin", "wb") as file:
        for text in texts:
            file.write(struct.pack("<I", len(text)) + text)
    with open(work / "texts.bin", "rb") as source, open(work / "ids.bin", "wb") as target:
        done = subprocess.run([tool, path], stdin=source, stdout=target, stderr=subprocess.PIPE, text=True)
    if done.returncode != 0:
        sys.exit(f"{path}: {done.stderr}")
    numbers = np.fromfile(work / "ids.bin", dtype=np.int32)
    at = 0
    result = []
    for _ in texts:
        count = int(numbers[at])
        result.append(numbers[at + 1:at + 1 + count].tolist())
        at += 1 + count
    return result, done.stderr.strip()


def expected(library, texts):
    """The library's ids of each text, in order."""
    whole = []  # indices of those that are UTF-8
    for index, text in enumerate(texts):
        try:
            whole.append((index, text.decode()))
        except UnicodeDecodeError:
            pass
    result = [None] * len(texts)
    for (index, _), ids in zip(whole, library.encode_many([text for _, text in whole])):
        result[index] = ids
    for index, text in enumerate(texts):
        if result[index] is None:
            characters = text.decode(errors="surrogateescape")
            spans = [c.encode(errors="surrogateescape") for c in characters]
            repaired = "".join("\ufffd" if "\ud800" <= c <= "\udfff" else c for c in characters)
            result[index] = library.encode_words(repaired, spans)
    return result


def make_strings(count, seed):
    """Strings of all that patterns and merges tell apart; every second one has bytes that are no UTF-8."""
    chance = random.Random(seed)
    words = ["the", "The", "THE", "don't", "I'LL", "we'Ve", "'s", "'\u017f", "'S", "it's", "<|endoftext|>", "12",
             "3456", "\u0663\u0664\u0665\u0666", "\u00bd", "\u2167", "cafe\u0301", "\u0301", "\u0928\u093f", "\u01c5",
             "HTTPServer", "\u4e2d\u6587\u5b57", "\ud55c\uad6d\uc5b4", "\U0001f600", "\U0001f468\u200d\U0001f469",
             "http://a.b/c//", "==", "\u00e9t\u00e9", "\u0130I\u0131", "\u02b0\u02b1", "\u180e", "\ufffd", "def f(x):",
             "aaaaaaaaaaaaaaaaaaaaaaa"]
    spaces = [" ", " ", " ", "  ", "   ", "\n", "\n\n", "\r\n", "\t", " \n ", "\u00a0", "\u2003", "\u3000", "\u0085",
              "\v", "/"]
    broken = [b"\xff", b"\xc3", b"\x80", b"\xe2\x82", b"\xf0\x9f\x98", b"\xed\xa0\x80", b"\xc0\xaf",
              b"\xf4\x90\x80\x80", b"\xe0\x80\x80", b"\xbf\xbf"]

    def part():
        which = chance.randrange(10)
        if which < 3:
            return chance.choice(words).encode()
        if which < 6:
            return chance.choice(spaces).encode()
        if which == 6:
            return bytes(chance.randrange(128) for _ in range(chance.randrange(1, 6)))
        if which == 7:
            limit = chance.choice([0x180, 0x3000, 0xD800, 0x20000, 0x110000])
            codes = [chance.randrange(limit) for _ in range(chance.randrange(1, 4))]
            return "".join(chr(c) for c in codes if not 0xD800 <= c <= 0xDFFF).encode()
        if which == 8:
            return chance.choice([b"a", b" ", b"=", b"\n", "\u00e9".encode(), b"ab", b"1"]) * chance.randrange(1, 80)
        return chance.choice(words).encode()[:chance.randrange(1, 8)].decode(errors="ignore").encode()

    strings = []
    for index in range(count):
        parts = [part() for _ in range(chance.randrange(1, 12))]
        if index % 2:
            for _ in range(chance.randrange(1, 4)):
                bad = chance.choice(broken) if chance.randrange(3) else bytes([chance.randrange(128, 256)])
                parts.insert(chance.randrange(len(parts) + 1), bad)
        strings.append(b"".join(parts))
    return strings


def train(pre_tokenizer, special, documents, size, ignore_merges):
    tokenizer = Tokenizer(models.BPE(ignore_merges=ignore_merges))
    tokenizer.pre_tokenizer = pre_tokenizer
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=size, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
                                  special_tokens=special, show_progress=False)
    tokenizer.train_from_iterator(documents, trainer)
    return tokenizer


def byte_level(*steps):
    return pre_tokenizers.Sequence([*steps, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])


def libraries(arguments, documents):
    """Name, path of our tokenizer, the library's, and whether it is of those that all text goes through."""
    work, gpt2 = arguments.work, arguments.gpt2
    sample = [text.decode(errors="ignore") for text in documents[:400]]

    tokenizer = Tokenizer(models.BPE.from_file(str(gpt2 / "vocab.json"), str(gpt2 / "merges.txt")))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.add_special_tokens(["<|endoftext|>"])
    yield "gpt2", gpt2, HuggingFace(tokenizer), True

    tokenizer = train(byte_level(pre_tokenizers.Split(Regex(LLAMA3), "isolated")),
                      ["<|begin_of_text|>", "<|end_of_text|>"], sample, 20000, True)
    tokenizer.save(str(work / "llama3.json"))
    yield "llama3", work / "llama3.json", HuggingFace(tokenizer), True

    tokenizer = train(byte_level(pre_tokenizers.Digits(individual_digits=True),
                                 pre_tokenizers.Split(Regex(OTHER), "isolated")),
                      ["<|endoftext|>"], sample, 2000, False)
    tokenizer.save(str(work / "digits.json"))
    yield "digits", work / "digits.json", HuggingFace(tokenizer), False

    tokenizer = train(pre_tokenizers.ByteLevel(add_prefix_space=False), ["</s>"], sample, 3000, False)
    tokenizer.add_tokens([" " * n for n in range(2, 12)] + ["def f", tokenizers.AddedToken("the", normalized=False)])
    tokenizer.save(str(work / "added.json"))
    yield "added", work / "added.json", AddedHuggingFace(tokenizer), False

    ranks = tiktoken.load.load_tiktoken_bpe(str(gpt2 / "r50k_base.tiktoken"))
    public = tiktoken_ext.openai_public
    public.load_tiktoken_bpe = lambda *_, **__: ranks  # the files of the others are not at hand
    for name, splitting in [("r50k_base", GPT2), ("cl100k_base", CL100K), ("o200k_base", O200K)]:
        path = work / f"{name}.tiktoken"
        path.write_bytes((gpt2 / "r50k_base.tiktoken").read_bytes())
        pattern = getattr(public, name)()["pat_str"]
        yield name, path, Tiktoken(name, pattern, ranks, splitting), name == "r50k_base"
        (work / name).mkdir(exist_ok=True)
        subprocess.run([arguments.tool, path, work / name], check=True)
        exported = HuggingFace(Tokenizer.from_file(str(work / name / "tokenizer.json")))
        yield name + " exported", work / name / "tokenizer.json", exported, False


class AddedHuggingFace(HuggingFace):
    """Added tokens are found by the whole tokenizer only: strings that are no UTF-8 are not compared."""

    def encode_words(self, repaired, spans):
        return None


def compare(name, mine, theirs, texts):
    different = [i for i, (a, b) in enumerate(zip(mine, theirs)) if b is not None and a != b]
    compared = sum(b is not None for b in theirs)
    print(f"{name}: {compared} texts, {sum(map(len, mine))} ids, {len(different)} differ", flush=True)
    for i in sorted(different, key=lambda i: len(texts[i]))[:3]:
        at = next((k for k, (a, b) in enumerate(zip(mine[i], theirs[i])) if a != b), 0)
        print(f"  {texts[i][:200]!r} at {at}: {mine[i][at:at + 8]} in place of {theirs[i][at:at + 8]}")
    return not different


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tool", type=pathlib.Path, help="the program tokenize_stream")
    parser.add_argument("--text", type=pathlib.Path, required=True)
    parser.add_argument("--gpt2", type=pathlib.Path, required=True)
    parser.add_argument("--work", type=pathlib.Path, required=True)
    parser.add_argument("--bytes", type=int, default=100_000_000, help="of the text, for the main ones; others a tenth")
    parser.add_argument("--strings", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", nargs="*", help="names of comparisons")
    arguments = parser.parse_args()
    arguments.work.mkdir(parents=True, exist_ok=True)
    with open(arguments.text, "rb") as file:
        documents = file.read(arguments.bytes).split(b"\n<|endoftext|>\n")
    strings = make_strings(arguments.strings, arguments.seed)
    few = documents[:max(1, len(documents) // 10)]
    equal = True
    for name, path, library, everything in libraries(arguments, documents):
        if arguments.only and name not in arguments.only:
            continue
        for what, texts in [("text", documents if everything else few), ("strings", strings)]:
            ids, speed = ours(arguments.tool, path, texts, arguments.work)
            if what == "text":
                print(speed)
            equal &= compare(f"{name}, {what}", ids, expected(library, texts), texts)
    sys.exit(0 if equal else 1)


if __name__ == "__main__":
    main()
