#!/usr/bin/env python3
"""Compares `filigree import` and `filigree export` with the transformers and PEFT libraries.

    python3 scripts/hub/check.py [--build build] [--work FOLDER] [--record tests/hub/cases]

Makes tiny GPT-2, OPT, LLaMA and Mistral models; imports each, and the logits on every position must be those of
transformers to 1e-4; exports each again, and transformers must load it and give the same logits; trains from it sparsely
(SLoPe and blocks, with adapters), and the export, merged and in the form of PEFT, must give the logits of the trained
model. SentencePiece and byte tokenizers from here must give the same ids there.

Needs the targets filigree and hub_logits, and torch, transformers >= 5, peft, safetensors, sentencepiece, protobuf. --record writes
the small cases that the tests read instead.
"""

import argparse
import pathlib
import shutil
import subprocess
import sys
import tempfile

import numpy
import peft
import safetensors.torch
import torch
import transformers

import tiny

VOCAB = 288  # room for the byte tokenizer's 257
TOLERANCE = 1e-4
REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
failures = []


class Tools:
    def __init__(self, build, work):
        self.program, self.logits_program, self.work = build / "filigree", build / "tests/hub/hub_logits", work

    def run(self, *arguments):
        done = subprocess.run([self.program, *map(str, arguments)], capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise SystemExit(f"filigree {' '.join(map(str, arguments))}\n{done.stderr}")
        return done

    def logits(self, model, tokens):
        given, out = self.work / "tokens.safetensors", self.work / "logits.safetensors"
        safetensors.torch.save_file({"tokens": tokens.int()}, given)
        subprocess.run([self.logits_program, model, given, out], check=True)
        return safetensors.torch.load_file(out)["logits"].float()


def compare(what, got, want, tolerance=TOLERANCE):
    difference = (got - want).abs().max().item()
    right = got.shape == want.shape and difference <= tolerance
    print(f"{'ok    ' if right else 'FAILED'} {what}: at most {difference:.1e} apart, logits up to "
          f"{want.abs().max().item():.1f}")
    if not right:
        failures.append(what)


def load(folder):
    model, report = transformers.AutoModelForCausalLM.from_pretrained(
        folder, attn_implementation="eager", dtype=torch.float32, output_loading_info=True)
    for key in ("missing_keys", "unexpected_keys", "mismatched_keys"):
        if report[key]:
            failures.append(f"{folder}: {key} {report[key]}")
    return model.eval()


def check_round_trip(tools, name, model, save=None, export=()):
    """Import, compare, export, compare."""
    tokens = tiny.make_tokens(model.config.vocab_size, seed=7)
    want = tiny.logits(model, tokens)
    theirs, ours, back = (tools.work / f"{name}-{part}" for part in ("theirs", "ours", "back"))
    (save or model.save_pretrained)(theirs)
    tools.run("import", theirs, "--out", ours)
    compare(f"{name}: imported", tools.logits(ours, tokens), want)
    tools.run("export", ours, "--out", back, *export)
    returned = load(back)
    compare(f"{name}: exported", tiny.logits(returned, tokens), want, 1e-6)
    if returned.config.model_type != model.config.model_type:
        failures.append(f"{name}: came back as {returned.config.model_type}")
    return theirs


def save_bare(model, with_head=None):
    """As older files are: names without their first part, causal masks among them."""
    def save(folder):
        model.save_pretrained(folder)
        file = folder / "model.safetensors"
        prefix = model.base_model_prefix + "."
        tensors = {name.removeprefix(prefix): value.clone() for name, value in safetensors.torch.load_file(file).items()}
        if model.config.model_type == "gpt2":
            for i in range(model.config.n_layer):
                size = model.config.n_positions
                tensors[f"h.{i}.attn.bias"] = torch.ones(1, 1, size, size, dtype=torch.bool).tril()
                tensors[f"h.{i}.attn.masked_bias"] = torch.tensor(-1e4)
        if with_head:
            tensors["lm_head.weight"] = tensors[with_head].clone()
        safetensors.torch.save_file(tensors, file, metadata={"format": "pt"})
    return save


TRAINING = """
[model]
init = "{init}"
[data]
train = "text.txt"
tokenizer = "bytes"
[train]
steps = 12
batch_tokens = 192
lr = 1e-2
[weights]
method = "{method}"
pattern = "2:4"
block = "8x8"
dense_layers = ["blocks.0.attention.qkv", "head"]
[adapters]
rank = 4
start = 0.3
rewarm = 1.0
init = "{init_of_adapters}"
[run]
deterministic = true
device = "cpu"
precision = "{precision}"
"""


def check_sparse(tools, name, init, method, init_of_adapters, precision="fp32"):
    """Train sparsely from a folder of theirs; what is exported must be what was trained."""
    name += "" if precision == "fp32" else f" in {precision}"
    run, config = tools.work / f"{name}-{method}", tools.work / f"{name}-{method}.toml"
    (tools.work / "text.txt").write_text("".join(f"In year {i} the mill turns {i * i % 97} times.\n" for i in range(400)))
    config.write_text(TRAINING.format(init=init, method=method, init_of_adapters=init_of_adapters,
                                      precision=precision))
    tools.run("train", config, "--out", run)
    tokens = tiny.make_tokens(257, seed=8)
    want = tools.logits(run, tokens)
    merged, beside = tools.work / f"{name}-{method}-merged", tools.work / f"{name}-{method}-peft"
    tools.run("export", run, "--out", merged, "--max-shard-size", "20KB")
    model = load(merged)
    # Merging rounds a sum to the run's type: 2^-9 of each weight in bf16, and the logits are sums of such errors.
    rounding = TOLERANCE if precision == "fp32" else 0.1
    compare(f"{name}, {method}: adapters merged", tiny.logits(model, tokens), want, rounding)
    tools.run("export", run, "--out", beside, "--adapters", "peft")
    base = load(beside)
    matrices = [value for key, value in base.state_dict().items() if ".1." in key and value.dim() == 2]
    kept = sum(int((value != 0).sum()) for value in matrices) / sum(value.numel() for value in matrices)
    if not 0.4 < kept < 0.6:
        failures.append(f"{name}, {method}: {kept:.2f} of the second block is not zero")
    without = tiny.logits(base, tokens)
    adapted = peft.PeftModel.from_pretrained(base, beside / "adapter").eval()
    compare(f"{name}, {method}: adapters by PEFT", tiny.logits(adapted, tokens), want)
    if (without - want).abs().max() < 100 * TOLERANCE:
        failures.append(f"{name}, {method}: the adapters do nothing, so that this shows nothing")
    tools.run("import", merged, "--out", tools.work / f"{name}-{method}-again")
    compare(f"{name}, {method}: imported again", tools.logits(tools.work / f"{name}-{method}-again", tokens),
            tiny.logits(model, tokens))


def check_tokenizer(tools, name, rule):
    """A tokenizer of ours, exported with a model, gives the same ids."""
    text = "".join(f"In year {i} the mill  turns {i * i % 97} times.\tÄrger, naïve 東京 😀\n" for i in range(3000))
    data, run, out = (tools.work / f"{name}-{part}" for part in ("data", "run", "out"))
    (tools.work / "tokens.txt").write_text(text)
    tools.run("prepare", "--text", tools.work / "tokens.txt", "--tokenizer", rule, "--out", data, "--val-fraction", "0")
    config = tools.work / f"{name}.toml"
    config.write_text('[model]\narch = "llama"\nlayers = 1\nwidth = 32\nheads = 2\ncontext = 32\n[data]\n'
                      f'train = "{data}"\n[train]\nsteps = 1\nbatch_tokens = 64\n[run]\ndevice = "cpu"\n')
    tools.run("train", config, "--out", run)
    tools.run("export", run, "--out", out)
    tokenizer = transformers.AutoTokenizer.from_pretrained(out)
    ids = tokenizer(text)["input_ids"]
    shard = next(data.glob("train*.bin"))
    ours = numpy.fromfile(shard, dtype=numpy.uint16, offset=1024)[:-1].tolist()  # the last one ends the document
    equal = ids == ours and tokenizer.decode(ids) == text
    print(f"{'ok    ' if equal else 'FAILED'} tokenizer {rule}: {len(ids)} ids")
    if not equal:
        failures.append(f"tokenizer {rule}: other ids in transformers")


def check_all(tools):
    gpt2 = check_round_trip(tools, "gpt2", tiny.make(tiny.gpt2(VOCAB), 1), export=("--max-shard-size", "20KB"))
    opt = check_round_trip(tools, "opt", tiny.make(tiny.opt(VOCAB), 2))
    check_round_trip(tools, "llama-2", tiny.make(tiny.llama2(VOCAB), 3))
    model = tiny.make(tiny.llama3(VOCAB), 4)
    llama = check_round_trip(tools, "llama-3, sharded", model,
                             save=lambda folder: model.save_pretrained(folder, max_shard_size="20KB"))
    mistral = check_round_trip(tools, "mistral", tiny.make(tiny.mistral(VOCAB), 5))
    check_round_trip(tools, "mistral without a window", tiny.make(tiny.mistral(VOCAB, sliding_window=None), 6))
    check_round_trip(tools, "llama, tied", tiny.make(tiny.llama3(VOCAB, tie_word_embeddings=True), 7))
    check_round_trip(tools, "gpt2, untied", tiny.make(tiny.gpt2(VOCAB, tie_word_embeddings=False), 8))
    for dtype in (torch.bfloat16, torch.float16):
        half = tiny.make(tiny.llama3(VOCAB), 9).to(dtype)
        name = f"llama in {str(dtype).removeprefix('torch.')}"
        theirs, tokens = tools.work / f"{name}-theirs", tiny.make_tokens(VOCAB, seed=9)
        half.save_pretrained(theirs)
        want = tiny.logits(load(theirs), tokens)  # the module itself has rounded rotary frequencies, too
        tools.run("import", theirs, "--out", tools.work / f"{name}-ours", "--precision", "fp32")
        compare(f"{name}: imported", tools.logits(tools.work / f"{name}-ours", tokens), want)
        tools.run("import", theirs, "--out", tools.work / f"{name}-own")
        tools.run("export", tools.work / f"{name}-own", "--out", tools.work / f"{name}-back")
        compare(f"{name}: exported", tiny.logits(load(tools.work / f"{name}-back"), tokens), want, 1e-6)
    bare = tiny.make(tiny.gpt2(VOCAB), 10)
    check_round_trip(tools, "gpt2, bare names and masks", bare, save=save_bare(bare, with_head="wte.weight"))
    bare = tiny.make(tiny.opt(VOCAB), 11)
    check_round_trip(tools, "opt, bare names", bare, save=save_bare(bare))
    for name, init in (("gpt2", gpt2), ("opt", opt), ("llama", llama), ("mistral", mistral)):
        check_sparse(tools, name, init, "slope", "normal")
        check_sparse(tools, name, init, "block", "scaled")
    check_sparse(tools, "llama", llama, "slope", "normal", "bf16")
    check_tokenizer(tools, "sentencepiece", "spm:400")
    check_tokenizer(tools, "bytes", "bytes")


def record(out):
    """Each with its weights in another type, and one in several files; logits in fp32 of the weights as stored."""
    shutil.rmtree(out, ignore_errors=True)
    for seed, (name, config, dtype, size) in enumerate((
            ("gpt2", tiny.gpt2(40, n_embd=16, n_inner=32, n_positions=8), torch.float32, "1GB"),
            ("opt", tiny.opt(40, hidden_size=16, word_embed_proj_dim=16, ffn_dim=32, max_position_embeddings=8),
             torch.float16, "1GB"),
            ("llama", tiny.llama3(40, hidden_size=16, intermediate_size=24, max_position_embeddings=8, head_dim=4),
             torch.float32, "10KB"),
            ("mistral", tiny.mistral(40, hidden_size=16, intermediate_size=24, max_position_embeddings=8, head_dim=4),
             torch.bfloat16, "1GB"))):
        model = tiny.make(config, seed=40 + seed).to(dtype)
        model.save_pretrained(out / name, max_shard_size=size)
        tokens = tiny.make_tokens(40, seed=50 + seed, sequences=2, positions=8)
        safetensors.torch.save_file({"tokens": tokens.int(), "logits": tiny.logits(load(out / name), tokens)},
                                    out / name / "expected.safetensors")


def main():
    parser = argparse.ArgumentParser(description="Compares import and export with transformers and PEFT.")
    parser.add_argument("--build", type=pathlib.Path, default=REPOSITORY / "build")
    parser.add_argument("--work", type=pathlib.Path, help="a folder to keep; by default a temporary one")
    parser.add_argument("--record", type=pathlib.Path, help="write the tests' cases here, and compare nothing")
    arguments = parser.parse_args()
    transformers.logging.set_verbosity_error()
    torch.set_num_threads(1)
    if arguments.record:
        record(arguments.record)
        return
    with tempfile.TemporaryDirectory() as temporary:
        work = arguments.work or pathlib.Path(temporary)
        work.mkdir(parents=True, exist_ok=True)
        check_all(Tools(arguments.build.resolve(), work.resolve()))
    for failure in failures:
        print(f"FAILED {failure}")
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
