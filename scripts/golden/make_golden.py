#!/usr/bin/env python3
"""Writes tests/golden/{gpt2,opt,llama}.safetensors: what PyTorch computes for the same weights and the same tokens.

    python3 scripts/golden/make_golden.py [--out tests/golden]

Each file holds the initial weights under filigree's names, and
    tokens          (20, B, S + 1) int32   one batch a step; inputs are [:, :-1], targets [:, 1:]
    losses          (20) fp32              mean cross-entropy (nats) of each step, before its update
    gradient_norms  (20) fp32              global gradient norm of each step, before clipping
    logits          (B, S, V) fp32         of the initial weights on the first batch
and, as the metadata entry "golden", the model's shape, the optimizer's settings and the versions as JSON.

Before anything is written, the logits are compared with those of the classes GPT2LMHeadModel, OPTForCausalLM and
LlamaForCausalLM of the transformers library, so that two independent definitions agree on every architecture; and the
run is repeated in fp64: seeds are chosen so that its losses agree to 2e-6. (With some seeds a ReLU stands so close to
its kink that fp32 rounding decides, and with it the sign of a whole Adam update: 1e-3 apart, no test of anything.)

Needs torch >= 2.2, transformers >= 4.40, safetensors >= 0.4 and numpy on the CPU; the files in the repository name the
versions that made them. Only this script needs them: the tests read the files.
"""

import argparse
import dataclasses
import json
import pathlib

import safetensors.torch
import torch
import transformers

import reference
from models import Model, initial_parameters, logits

STEPS, SEQUENCES = 20, 4
OPTIMIZER = {"lr": 1e-3, "beta1": 0.9, "beta2": 0.95, "eps": 1e-8, "weight_decay": 0.1, "clip": 1.0}
MODELS = [
    Model(arch="gpt2", layers=3, width=32, heads=4, kv_heads=4, ffn=128, vocab=97, context=16),
    Model(arch="opt", layers=2, width=40, heads=4, kv_heads=4, ffn=160, vocab=97, context=16),
    Model(arch="llama", layers=2, width=48, heads=4, kv_heads=2, ffn=96, vocab=97, context=16),
]


def make_tokens(model, seed):
    """Text with something to learn: mostly t -> 5t + 3 (mod V), a fifth of the tokens at random."""
    generator = torch.Generator().manual_seed(seed)
    shape = (STEPS, SEQUENCES, model.context + 1)
    noise = torch.randint(model.vocab, shape, generator=generator)
    is_noise = torch.rand(shape, generator=generator) < 0.2
    tokens = noise.clone()
    for s in range(1, model.context + 1):
        tokens[..., s] = torch.where(is_noise[..., s], noise[..., s], (5 * tokens[..., s - 1] + 3) % model.vocab)
    return tokens


def decayed(name, parameter):
    return parameter.dim() >= 2 and not name.startswith("embedding.")


def train(model, parameters, tokens):
    """AdamW as filigree defines it: decay on the matrices of linear layers, not on embeddings, biases and norms."""
    parameters = {name: value.clone().requires_grad_() for name, value in parameters.items()}
    groups = [
        {"params": [p for name, p in parameters.items() if decayed(name, p)], "weight_decay": OPTIMIZER["weight_decay"]},
        {"params": [p for name, p in parameters.items() if not decayed(name, p)], "weight_decay": 0.0},
    ]
    betas = (OPTIMIZER["beta1"], OPTIMIZER["beta2"])
    optimizer = torch.optim.AdamW(groups, lr=OPTIMIZER["lr"], betas=betas, eps=OPTIMIZER["eps"], foreach=False)
    losses, norms = [], []
    for batch in tokens:
        predicted = logits(model, parameters, batch[:, :-1])
        loss = torch.nn.functional.cross_entropy(predicted.flatten(0, 1), batch[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        norm = torch.sqrt(sum(p.grad.double().pow(2).sum() for p in parameters.values()))
        if norm > OPTIMIZER["clip"]:
            for p in parameters.values():
                p.grad.mul_(OPTIMIZER["clip"] / norm.item())
        optimizer.step()
        losses.append(loss.item())
        norms.append(norm.item())
    return torch.tensor(losses), torch.tensor(norms)


def main():
    repository = pathlib.Path(__file__).resolve().parents[2]
    parser = argparse.ArgumentParser(description="Makes the golden values of the model tests.")
    parser.add_argument("--out", type=pathlib.Path, default=repository / "tests" / "golden")
    out = parser.parse_args().out
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    torch.use_deterministic_algorithms(True)
    out.mkdir(parents=True, exist_ok=True)
    for index, model in enumerate(MODELS):
        parameters = initial_parameters(model, seed=120 + index)
        tokens = make_tokens(model, seed=220 + index)
        with torch.no_grad():
            first = logits(model, parameters, tokens[0, :, :-1])
            other = reference.logits(model, parameters, tokens[0, :, :-1])
        difference = (first - other).abs().max().item()
        if difference > 1e-5:
            raise SystemExit(f"{model.arch}: logits differ from the transformers library's by {difference:.2e}")
        losses, norms = train(model, parameters, tokens)
        exact, _ = train(model, {name: value.double() for name, value in parameters.items()}, tokens)
        rounding = (losses - exact).abs().max().item()
        if rounding > 2e-6:
            raise SystemExit(f"{model.arch}: fp32 and fp64 losses differ by {rounding:.1e}: choose another seed")
        about = {
            "model": dataclasses.asdict(model),
            "optimizer": OPTIMIZER,
            "versions": {"torch": torch.__version__, "transformers": transformers.__version__},
        }
        tensors = dict(parameters, tokens=tokens.int(), losses=losses, gradient_norms=norms, logits=first)
        path = out / f"{model.arch}.safetensors"
        safetensors.torch.save_file(tensors, path, metadata={"golden": json.dumps(about, sort_keys=True)})
        clipped = int((norms > OPTIMIZER["clip"]).sum())
        print(f"{path.name}: {path.stat().st_size} bytes, loss {losses[0]:.4f} -> {losses[-1]:.4f}, clipped in "
              f"{clipped} of {STEPS} steps, logits within {difference:.1e} of the transformers library's, losses "
              f"within {rounding:.1e} of fp64")


if __name__ == "__main__":
    main()
