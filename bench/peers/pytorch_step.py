#!/usr/bin/env python3
"""Times a training step of PyTorch, on the CPU or on one GPU: the peer that `filigree bench step` stands beside.

    python3 bench/peers/pytorch_step.py --case quickstart --batch 16 --precision fp32 --json FILE
    python3 bench/peers/pytorch_step.py --device cuda --case gpt2-124m --batch 64 --vocab 50304 --precision bf16
    python3 bench/peers/pytorch_step.py --device cuda --case opt-13b --layers 4 --batch 8 --precision bf16

A step is all of it: forward, backward, clipping of the global gradient norm, AdamW. Data and weights are random. Each
variant is warmed up, then timed; the fastest by its median gets the row "pytorch", the one to compare with. With --all
each variant gets its own row besides. Rows have the form that `filigree bench --json` writes and replace equal ones.

Variants, each as plain PyTorch and through torch.compile:
  fp32  "fp32"      true fp32 products (PyTorch's default)
  bf16  "autocast"  fp32 weights, products in bf16 under torch.autocast
        "master"    bf16 weights and activations, fp32 master weights in the optimizer: what filigree's bf16 is
        "pure"      bf16 weights and moments without masters: small updates are lost, so it is shown (row "pytorch (pure
                    bf16)") and never taken as the baseline
Common to all: the fused AdamW, flash attention (scaled_dot_product_attention), gradients set to none rather than zeroed,
denormals flushed, and large blocks kept by malloc between steps in huge pages (without it each step maps and clears its
big tensors anew; --malloc default shows the difference: quickstart, 2 cores of a Xeon with AMX, fp32 513 to 476 ms, bf16
298 to 240 ms). Tried and left out, as they change nothing or harm: binding threads and active waiting. Freezing and the
C++ GEMM templates of torch.compile need constant weights: they serve inference only.

On a GPU: rows of tokens per second, peak memory (of the allocator) and seconds from the start of the process to the end
of the first step besides (other variants left out). A step ends when its loss has been read.

Needs torch >= 2.5, and a C++ compiler for torch.compile.
"""

import argparse
import json
import os
import pathlib
import platform
import shlex
import statistics
import subprocess
import sys
import time

STARTED = time.time()
LOADING = 0.0  # seconds from the start to the first variant's, set in main

# Large blocks stay with the process, in huge pages: read by glibc when a process starts.
MALLOC = {"MALLOC_MMAP_THRESHOLD_": str(8 << 30), "MALLOC_TRIM_THRESHOLD_": str(16 << 30),
          "MALLOC_TOP_PAD_": str(64 << 20), "GLIBC_TUNABLES": "glibc.malloc.hugetlb=1"}


def arguments():
    parser = argparse.ArgumentParser(description="Times a training step of PyTorch.")
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--case", default="quickstart", help="one of pytorch_models.py")
    parser.add_argument("--layers", type=int, help="blocks; default: the model's")
    parser.add_argument("--precision", choices=["fp32", "bf16"], default="fp32")
    parser.add_argument("--batch", type=int, default=16, help="sequences a step")
    parser.add_argument("--vocab", type=int, help="entries of the vocabulary; default: the model's")
    parser.add_argument("--sequence", type=int, help="tokens a sequence; default: the model's context")
    parser.add_argument("--steps", type=int, default=20, help="timed steps a variant")
    parser.add_argument("--warmup", type=int, default=5)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--variants", help="comma-separated, e.g. master,master+compile; default: all of the precision")
    parser.add_argument("--malloc", choices=["keep", "default"], default="keep")
    parser.add_argument("--all", action="store_true", help="write a row for each variant too")
    parser.add_argument("--json", type=pathlib.Path)
    return parser.parse_args()


def make_step(model, form, compiled, device):
    """A function of (tokens, targets) that takes one whole training step."""
    import torch

    if form in ("master", "pure"):
        model.to(torch.bfloat16)
    weights = list(model.parameters())
    masters = [w.detach().float() for w in weights] if form == "master" else weights
    groups = [{"params": [p for p in masters if p.dim() > 1], "weight_decay": 0.1},
              {"params": [p for p in masters if p.dim() == 1], "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=1e-4, betas=(0.9, 0.95), eps=1e-8, fused=True)
    loss_of = torch.compile(model) if compiled else model

    def step(tokens, targets):
        with torch.autocast(device, dtype=torch.bfloat16, enabled=form == "autocast"):
            loss = loss_of(tokens, targets)
        loss.backward()
        if form == "master":
            for master, weight in zip(masters, weights):
                master.grad = weight.grad.float()
        torch.nn.utils.clip_grad_norm_(masters, 1.0, foreach=True)
        optimizer.step()
        if form == "master":
            with torch.no_grad():
                torch._foreach_copy_(weights, masters)
        for tensor in weights + masters:
            tensor.grad = None
        return loss

    return step


def measure(options, variant, shape, sequence):
    """Milliseconds of each timed step."""
    import torch
    from pytorch_models import make_model

    begun = time.time()
    if options.device == "cuda":
        torch.cuda.reset_peak_memory_stats()  # what an earlier variant held is not this one's
    torch.manual_seed(options.seed)
    torch._dynamo.reset()
    form, _, compiled = variant.partition("+")
    step = make_step(make_model(shape).to(options.device), form, bool(compiled), options.device)
    batches = torch.randint(shape["vocab"], (options.warmup + options.steps, 2, options.batch, sequence))
    batches = batches.to(options.device)
    times = []
    for index, (tokens, targets) in enumerate(batches):
        begin = time.perf_counter()
        loss = step(tokens, targets).item()
        times.append((time.perf_counter() - begin) * 1e3)
        if index == 0:
            first = time.time() - begun + LOADING
    if not 0.0 < loss < 100.0:
        raise SystemExit(f"{variant}: the loss is {loss}")
    peak = torch.cuda.max_memory_allocated() if options.device == "cuda" else None
    return times[options.warmup :], first, peak


def processor():
    for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.processor()


def write(path, rows, about):
    """Replaces rows of equal case, method, config and metric, and appends the others."""
    document = json.loads(path.read_text()) if path.exists() else dict(about, rows=[])
    key = lambda row: (row["case"], row["method"], json.dumps(row["config"], sort_keys=True), row["metric"])
    fresh = {key(row) for row in rows}
    document["rows"] = [row for row in document["rows"] if key(row) not in fresh] + rows
    temporary = path.with_suffix(path.suffix + ".tmp")
    temporary.write_text(json.dumps(document, indent=1) + "\n")
    temporary.replace(path)


def main():
    options = arguments()
    if options.malloc == "keep" and any(os.environ.get(name) != value for name, value in MALLOC.items()):
        os.execve(sys.executable, [sys.executable, *sys.argv], {**os.environ, **MALLOC})  # read when a process starts
    import torch
    from pytorch_models import CASES

    torch.set_num_threads(options.threads)
    torch.set_flush_denormal(True)
    if options.case not in CASES:
        raise SystemExit(f"--case: there is no {options.case}; one of {', '.join(CASES)}")
    shape = dict(CASES[options.case])
    shape.update({key: value for key in ("vocab", "layers") if (value := getattr(options, key))})
    sequence = options.sequence or shape["context"]
    forms = ["fp32"] if options.precision == "fp32" else ["autocast", "master", "pure"]
    variants = options.variants.split(",") if options.variants else [f + c for f in forms for c in ("", "+compile")]

    commit = subprocess.run(["git", "-C", str(pathlib.Path(__file__).parent), "rev-parse", "--short=12", "HEAD"],
                            capture_output=True, text=True).stdout.strip() or "unknown"
    gpu = options.device == "cuda"
    device = torch.cuda.get_device_name() if gpu else f"{processor()}, {options.threads} threads"
    about = {"device": device, "driver": "",
             "libraries": {"torch": torch.__version__, "python": platform.python_version()}, "commit": commit,
             "command": shlex.join(["python3", *sys.argv])}
    config = {"batch": options.batch, "sequence": sequence, "layers": shape["layers"], "precision": options.precision,
              "ranks": 1, "seed": options.seed, "vocab": shape["vocab"]}
    if not gpu:
        config["threads"] = options.threads

    def row(method, metric, values):
        return {"case": options.case, "method": method, "config": config, "metric": metric,
                "median": statistics.median(values), "min": min(values), "max": max(values), "baseline": "",
                "ratio": None, "device": about["device"], "libraries": about["libraries"], "commit": commit,
                "command": about["command"]}

    def rows_of(method, variant):
        times, first, peak = measured[variant]
        tokens = options.batch * sequence * 1e3
        rows = [row(method, "step_ms", times)]
        if gpu:
            rows += [row(method, "tokens_per_s", [tokens / ms for ms in times]), row(method, "peak_bytes", [peak]),
                     row(method, "first_step_s", [first])]
        return rows

    global LOADING
    LOADING = time.time() - STARTED
    measured = {}
    for variant in variants:
        measured[variant] = measure(options, variant, shape, sequence)
        times = measured[variant][0]
        print(f"{options.case} {options.batch} x {sequence} {options.precision:5} {variant:18} "
              f"{statistics.median(times):10.2f} ms  (min {min(times):.2f}, max {max(times):.2f}, {len(times)} steps)",
              flush=True)

    fastest = lambda names: min(names, key=lambda name: statistics.median(measured[name][0]))
    rows = [row for name in measured for row in rows_of(f"pytorch ({name})", name)] if options.all else []
    plain = [name for name in measured if not name.startswith("pure")]
    pure = [name for name in measured if name.startswith("pure")]
    if plain:
        best = rows_of("pytorch", fastest(plain))
        rows += best
        print(f"pytorch: {fastest(plain)}, {best[0]['median']:.2f} ms a step, "
              f"{options.batch * sequence / best[0]['median'] * 1e3:.0f} tokens/s")
    if pure:
        rows += rows_of("pytorch (pure bf16)", fastest(pure))
    if options.json:
        write(options.json, rows, about)


if __name__ == "__main__":
    main()
