#!/usr/bin/env python3
"""Sets filigree's loss curve beside PyTorch's, from the same weights and on the same tokens.

    python3 bench/peers/pytorch_curves.py --curves build-cuda/bench/filigree_curves --json docs/results/h200-dense.json

fp32, 20 steps: the largest difference of the losses (PyTorch eager, TF32 off). bf16, 200 steps, bf16 weights with fp32
masters: how far filigree is from PyTorch eager, beside how far PyTorch compiled is from PyTorch eager, as the mean of
the absolute differences. The text has something to learn: mostly t -> 5t + 3 (mod V), a fifth of the tokens at random.
Needs torch >= 2.5 and safetensors >= 0.4.
"""

import argparse
import json
import pathlib
import shlex
import subprocess
import sys
import tempfile

import safetensors.torch
import torch

from pytorch_models import CASES, Gpt2
from pytorch_step import write

SETTINGS = {"lr": 3e-4, "weight_decay": 0.1, "clip": 1.0}
NAMES = {"tokens.weight": "embedding.tokens", "positions.weight": "embedding.positions",
         "norm.weight": "norm.gain", "norm.bias": "norm.bias"}


def filigree_name(name):
    if name in NAMES:
        return NAMES[name]
    _, index, layer, kind = name.split(".")
    if layer.startswith("norm"):
        return f"blocks.{index}.{layer}." + {"weight": "gain", "bias": "bias"}[kind]
    return f"blocks.{index}." + {"qkv": "attention", "out": "attention", "up": "mlp", "down": "mlp"}[layer] + f".{layer}.{kind}"


def make_tokens(steps, sequences, context, vocab):
    generator = torch.Generator().manual_seed(7)
    tokens = torch.randint(vocab, (steps, sequences, context + 1), generator=generator)
    noise = tokens.clone()
    is_noise = torch.rand(tokens.shape, generator=generator) < 0.2
    for s in range(1, context + 1):
        tokens[..., s] = torch.where(is_noise[..., s], noise[..., s], (5 * tokens[..., s - 1] + 3) % vocab)
    return tokens


def train(weights, shape, tokens, precision, compiled, device):
    """The loss of each step."""
    model = Gpt2(**shape)
    model.load_state_dict(weights)
    model.to(device)
    masters = {name: p.detach().clone() for name, p in model.named_parameters()} if precision == "bf16" else None
    if precision == "bf16":
        model.to(torch.bfloat16)
    own = dict(model.named_parameters())
    updated = masters or own
    decayed = [p for name, p in updated.items() if p.dim() > 1 and name.startswith("blocks.")]
    others = [p for name, p in updated.items() if not (p.dim() > 1 and name.startswith("blocks."))]
    optimizer = torch.optim.AdamW([{"params": decayed, "weight_decay": SETTINGS["weight_decay"]},
                                   {"params": others, "weight_decay": 0.0}],
                                  lr=SETTINGS["lr"], betas=(0.9, 0.95), eps=1e-8, foreach=True)
    loss_of = torch.compile(model) if compiled else model
    losses = []
    for batch in tokens:
        batch = batch.to(device)
        loss = loss_of(batch[:, :-1].contiguous(), batch[:, 1:].contiguous())
        loss.backward()
        for name, master in updated.items():
            if masters:
                master.grad = own[name].grad.float()
        torch.nn.utils.clip_grad_norm_(list(updated.values()), SETTINGS["clip"])
        optimizer.step()
        with torch.no_grad():
            for name, weight in own.items():
                if masters:
                    weight.copy_(masters[name])
                weight.grad = None
        losses.append(loss.item())
    return losses


def main():
    parser = argparse.ArgumentParser(description="Loss curves of filigree and PyTorch from the same start.")
    parser.add_argument("--curves", required=True, help="the program filigree_curves")
    parser.add_argument("--case", choices=[case for case in CASES if case.startswith("gpt2")], default="gpt2-124m")
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cuda")
    parser.add_argument("--vocab", type=int, default=50304)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--steps", type=int, nargs=2, default=[20, 200], metavar=("FP32", "BF16"))
    parser.add_argument("--json", type=pathlib.Path)
    options = parser.parse_args()
    torch.backends.cuda.matmul.allow_tf32 = False
    shape = dict(CASES[options.case], vocab=options.vocab)
    torch.manual_seed(1)
    weights = Gpt2(**shape).state_dict()
    tokens = make_tokens(max(options.steps), options.batch, shape["context"], shape["vocab"])

    def ours(precision, steps, path):
        done = subprocess.run([options.curves, path, precision, str(steps), options.device], check=True,
                              capture_output=True, text=True)
        return json.loads(done.stdout)

    with tempfile.NamedTemporaryFile(suffix=".safetensors") as file:
        about = dict(SETTINGS, heads=shape["heads"], layers=shape["layers"])
        tensors = {filigree_name(name): value.contiguous() for name, value in weights.items()}
        safetensors.torch.save_file(dict(tensors, tokens=tokens.int()), file.name, metadata={"run": json.dumps(about)})
        curves = {
            "fp32 pytorch eager": train(weights, shape, tokens[: options.steps[0]], "fp32", False, options.device),
            "fp32 filigree": ours("fp32", options.steps[0], file.name),
            "bf16 pytorch eager": train(weights, shape, tokens[: options.steps[1]], "bf16", False, options.device),
            "bf16 pytorch compiled": train(weights, shape, tokens[: options.steps[1]], "bf16", True, options.device),
            "bf16 filigree": ours("bf16", options.steps[1], file.name),
        }
    for name, losses in curves.items():
        print(f"{name:24}", " ".join(f"{loss:.4f}" for loss in losses[:: max(1, len(losses) // 20)]))
    difference = lambda a, b: [abs(x - y) for x, y in zip(curves[a], curves[b])]
    fp32 = difference("fp32 filigree", "fp32 pytorch eager")
    own = difference("bf16 filigree", "bf16 pytorch eager")
    compiled = difference("bf16 pytorch compiled", "bf16 pytorch eager")
    mean = lambda values: sum(values) / len(values)
    print(f"fp32: largest difference {max(fp32):.2e}; bf16: mean distance from PyTorch eager: filigree {mean(own):.2e}, "
          f"PyTorch compiled {mean(compiled):.2e}")
    if options.json:
        commit = subprocess.run(["git", "-C", str(pathlib.Path(__file__).parent), "rev-parse", "--short=12", "HEAD"],
                                capture_output=True, text=True).stdout.strip() or "unknown"
        device = torch.cuda.get_device_name() if options.device == "cuda" else "cpu"
        context = {"device": device, "libraries": {"torch": torch.__version__}, "commit": commit,
                   "command": shlex.join(["python3", *sys.argv])}

        def row(method, precision, metric, values, baseline="", ratio=None):
            config = {"batch": options.batch, "sequence": shape["context"], "layers": shape["layers"],
                      "precision": precision, "ranks": 1, "seed": 1, "vocab": shape["vocab"]}
            if options.device == "cpu":
                config["threads"] = torch.get_num_threads()
            return {"case": options.case, "method": method, "config": config, "metric": metric,
                    "median": mean(values), "min": min(values), "max": max(values), "baseline": baseline,
                    "ratio": ratio, **context}

        rows = [row("dense", "fp32", "loss_distance", fp32),
                row("pytorch-compiled", "bf16", "loss_distance", compiled),
                row("dense", "bf16", "loss_distance", own, "pytorch-compiled", mean(own) / mean(compiled))]
        write(options.json, rows, dict(context, driver=""))
        curves_file = options.json.with_name(options.json.stem + "-curves.json")
        curves_file.write_text(json.dumps(dict(context, curves=curves), indent=1) + "\n")


if __name__ == "__main__":
    main()
