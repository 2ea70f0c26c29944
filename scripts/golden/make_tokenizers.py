#!/usr/bin/env python3
"""Writes tests/golden/tokenizers/: small tokenizers, and the ids that tokenizers and tiktoken have for strings that
tell patterns and merges apart, broken UTF-8 among them (what is compared then: tests/text/compare_tokenizers.py).

    pip install numpy tiktoken==0.14.0 tokenizers==0.23.3      (in a virtual environment)
    scripts/golden/make_tokenizers.py
"""
import base64
import json
import pathlib
import sys

import tiktoken
import tiktoken_ext.openai_public as public
from tokenizers import AddedToken, Regex, Tokenizer, models, pre_tokenizers

ROOT = pathlib.Path(__file__).parent.parent.parent
sys.path.insert(0, str(ROOT / "tests/text"))
import compare_tokenizers as compare  # noqa: E402

OUT = ROOT / "tests/golden/tokenizers"
FURTHER = ["The children's caf\u00e9 isn't far: it's 12 km, \u00e9t\u00e9 comme hiver.\n\n"
           "  We'll SEE what they've got..."] * 3


def main():
    OUT.mkdir(parents=True, exist_ok=True)
    sample = (ROOT / "LICENSE").read_text().splitlines(keepends=True) + FURTHER
    libraries = {}

    gpt2 = compare.train(pre_tokenizers.ByteLevel(add_prefix_space=False), ["<|endoftext|>"], sample, 500, False)
    gpt2.model.save(str(OUT))  # vocab.json, merges.txt
    libraries["gpt2"] = compare.HuggingFace(gpt2)

    split = pre_tokenizers.Split(Regex(compare.LLAMA3), "isolated")
    llama3 = compare.train(compare.byte_level(split), ["<|begin_of_text|>", "<|end_of_text|>"], sample, 500, True)
    llama3.add_tokens(["   ", AddedToken("def f", normalized=False)])
    llama3.save(str(OUT / "llama3.json"))
    libraries["llama3"] = compare.AddedHuggingFace(llama3)

    # Ranks: the bytes, and what GPT-2's merges make, in their order.
    ranks = {bytes([byte]): byte for byte in range(256)}
    bytes_of = {character: byte for byte, character in compare.ALPHABET.items()}
    for line in (OUT / "merges.txt").read_text().splitlines()[1:]:
        ranks[bytes(bytes_of[c] for c in line.replace(" ", ""))] = len(ranks)
    text = "".join(f"{base64.b64encode(token).decode()} {rank}\n" for token, rank in ranks.items())
    (OUT / "ranks.tiktoken").write_text(text)
    public.load_tiktoken_bpe = lambda *_, **__: ranks
    splitting_of = {"r50k_base": compare.GPT2, "cl100k_base": compare.CL100K, "o200k_base": compare.O200K}
    for name, splitting in splitting_of.items():
        libraries[name] = compare.Tiktoken(name, getattr(public, name)()["pat_str"], ranks, splitting)

    strings = compare.make_strings(160, seed=1)
    cases = {"texts": [string.hex() for string in strings]}
    for name, library in libraries.items():
        cases[name] = compare.expected(library, strings)
    (OUT / "cases.json").write_text(json.dumps(cases, separators=(",", ":")) + "\n")


main()
