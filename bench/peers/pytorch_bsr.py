#!/usr/bin/env python3
"""Times PyTorch's product of a block-sparse weight (torch.sparse's BSR layout): the peer of `filigree bench matmul`'s
method "block" on a GPU.

    python3 bench/peers/pytorch_bsr.py --json FILE
    python3 bench/peers/pytorch_bsr.py --shapes 5120x20480 --tokens 4096 --density 0.25

Shapes are INPUTSxOUTPUTS, as there. yT (N, T) = W (N, K) xT (K, T): the forward product; PyTorch has no kernel for a
weight's gradient on kept blocks. Each block row keeps the same number of blocks, at random places. BSR wants whole
blocks: where they do not divide a shape, it is rounded up to the next one that they do, and what is added counts as
PyTorch's time.

Variants: "bsr @ x" as a user writes it, and the Triton kernel behind it (torch.sparse._triton_ops.bsr_dense_addmm) with
every combination of tile width, warps and stages that the GPU takes, x and y row-major as layers have them or
column-major as the kernel prefers, then with other group sizes. The fastest gets the row "pytorch-bsr"; "pytorch-dense"
is torch.nn.functional.linear of the dense weight, timed in turn with it, which the ratio refers to. Rows have the form
that `filigree bench --json` writes and replace equal ones. Data are random.

--device cpu tries the plain variant alone, in fp32: for testing this file.
"""

import argparse
import itertools
import pathlib
import platform
import shlex
import statistics
import subprocess
import sys
import time

from pytorch_step import processor, write

SHAPES = "1600x6400,5120x20480,7168x28672,4096x14336"


def shape_of(text):
    inputs, cross, outputs = text.partition("x")
    if not (cross and inputs.isdigit() and outputs.isdigit() and int(inputs) > 0 and int(outputs) > 0):
        raise argparse.ArgumentTypeError(f"a shape is INPUTSxOUTPUTS, e.g. 5120x20480; found {text!r}")
    return int(inputs), int(outputs)


def arguments():
    parser = argparse.ArgumentParser(description="Times PyTorch's block-sparse product.")
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    parser.add_argument("--shapes", type=lambda text: [shape_of(shape) for shape in text.split(",")], default=SHAPES)
    parser.add_argument("--tokens", type=int, default=16384)
    parser.add_argument("--block", type=int, default=128, help="rows and columns of a block")
    parser.add_argument("--density", type=float, default=0.5)
    parser.add_argument("--repeats", type=int, default=30, help="timed products of the fastest variant")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", type=pathlib.Path)
    options = parser.parse_args()
    if not 0.0 < options.density <= 1.0:
        parser.error(f"--density is above 0 and at most 1; found {options.density}")
    if options.block < 16 or options.block & (options.block - 1):
        parser.error(f"--block: the kernel takes powers of two from 16; found {options.block}")
    if options.tokens < 16 or options.tokens % 16:
        parser.error(f"--tokens: the kernel takes multiples of 16; found {options.tokens}")
    return options


def random_bsr(outputs, inputs, block, density, dtype, device):
    """A weight in BSR, and the same dense."""
    import torch

    rows, columns = -(-outputs // block), -(-inputs // block)
    kept = max(1, round(density * columns))
    columns_of = torch.stack([torch.randperm(columns)[:kept].sort().values for _ in range(rows)])
    blocks = torch.rand(rows * kept, block, block) - 0.5
    starts = torch.arange(0, rows * kept + 1, kept, dtype=torch.int32)
    size = (rows * block, columns * block)
    bsr = torch.sparse_bsr_tensor(starts, columns_of.flatten().to(torch.int32), blocks, size, check_invariants=True)
    dense = bsr.to_dense()  # in fp32: not every type can
    place = lambda tensor: tensor.to(dtype).to(device)
    return torch.sparse_bsr_tensor(bsr.crow_indices().to(device), bsr.col_indices().to(device), place(blocks), size,
                                   check_invariants=False), place(dense)


class Clock:
    """Milliseconds of a product on either device."""

    def __init__(self, device):
        self.gpu = device == "cuda"

    def once(self, product):
        import torch

        if not self.gpu:
            begin = time.perf_counter()
            product()
            return (time.perf_counter() - begin) * 1e3
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        product()
        end.record()
        end.synchronize()
        return begin.elapsed_time(end)

    def times(self, product, repeats, warmup=3):
        for _ in range(warmup):
            self.once(product)
        return [self.once(product) for _ in range(repeats)]


def triton_variants(weight, tokens, x, out, groups, metas):
    """Calls of the Triton kernel, by name. x and out: dictionaries of layouts of xT (K, T) and yT (N, T)."""
    from torch.sparse._triton_ops import bsr_dense_addmm

    variants = {}
    for (width, warps, stages), group, layout in itertools.product(metas, groups, x):
        if tokens % width == 0:
            meta = {"SPLIT_N": tokens // width, "GROUP_SIZE_ROW": group, "num_warps": warps, "num_stages": stages}
            variants[f"addmm {layout}, tile {width}, {warps} warps, {stages} stages, group {group}"] = (
                (width, warps, stages), layout,
                lambda layout=layout, meta=meta: bsr_dense_addmm(out[layout], weight, x[layout], beta=0, alpha=1,
                                                                 out=out[layout], meta=dict(meta)))
    return variants


def fastest(variants, expected, clock):
    """The name of the quickest variant that computes the right product; says which ones fail."""
    best = None
    for name, (_, _, product) in variants.items():
        try:
            result = product()
            worst = (result.float() - expected).abs().max().item()
            if not worst <= 0.02 * expected.abs().max().item():
                print(f"  {name}: wrong by {worst}", flush=True)
                continue
            spent = statistics.median(clock.times(product, 5))
        except Exception as error:  # a tile that does not fit this GPU, a type without a kernel
            print(f"  {name}: {type(error).__name__}", flush=True)
            continue
        if best is None or spent < best[0]:
            best = (spent, name)
    if best is None:
        raise SystemExit("no variant of the product works on this device")
    print(f"  {best[1]}: {best[0]:.3f} ms", flush=True)
    return best[1]


def measure(options, inputs, outputs):
    """Times of the fastest block-sparse variant, of the dense product, and the variant's name."""
    import torch

    torch.manual_seed(options.seed)
    dtype = torch.bfloat16 if options.device == "cuda" else torch.float32
    weight, dense = random_bsr(outputs, inputs, options.block, options.density, dtype, options.device)
    x = (torch.rand(options.tokens, weight.shape[1], device=options.device) - 0.5).to(dtype)
    expected = torch.nn.functional.linear(x, dense).float().t()
    clock = Clock(options.device)
    variants = {"bsr @ x": (None, None, lambda: weight @ x.t())}
    if options.device == "cuda":
        layouts = {"rows": x.t(), "columns": x.t().contiguous()}
        y = torch.empty(options.tokens, weight.shape[0], device=options.device, dtype=dtype)
        out = {"rows": y.t(), "columns": torch.empty_like(y.t(), memory_format=torch.contiguous_format)}
        metas = list(itertools.product((64, 128, 256), (4, 8), (1, 2, 3, 4)))
        variants.update(triton_variants(weight, options.tokens, layouts, out, (4,), metas))
    name = fastest(variants, expected, clock)
    meta, layout, _ = variants[name]
    if meta:
        variants = {name: variants[name]}
        variants.update(triton_variants(weight, options.tokens, {layout: layouts[layout]}, out, (1, 8, 16), [meta]))
        name = fastest(variants, expected, clock)
    sparse, product = [], variants[name][2]
    plain = []
    for _ in range(3):  # in turn, so that both see the same clocks
        plain += clock.times(lambda: torch.nn.functional.linear(x, dense), -(-options.repeats // 3))
        sparse += clock.times(product, -(-options.repeats // 3))
    return sparse, plain, name


def main():
    options = arguments()
    import torch

    gpu = options.device == "cuda"
    if gpu and not torch.cuda.is_available():
        raise SystemExit("no GPU; --device cpu tries the plain variant")
    commit = subprocess.run(["git", "-C", str(pathlib.Path(__file__).parent), "rev-parse", "--short=12", "HEAD"],
                            capture_output=True, text=True).stdout.strip() or "unknown"
    device = torch.cuda.get_device_name() if gpu else processor()
    command = shlex.join(["python3", *sys.argv])
    about = {"device": device, "driver": "",
             "libraries": {"torch": torch.__version__, "python": platform.python_version()}, "commit": commit,
             "command": command}
    config = {"batch": options.tokens, "sequence": 1, "layers": 1, "precision": "bf16" if gpu else "fp32", "ranks": 1,
              "seed": options.seed}

    def row(case, method, values, baseline="", ratio=None):
        return {"case": case, "method": method, "config": config, "metric": "forward_ms",
                "median": statistics.median(values), "min": min(values), "max": max(values), "baseline": baseline,
                "ratio": ratio, "device": device, "commit": commit, "command": command}

    rows = []
    for inputs, outputs in options.shapes:
        case = f"matmul-{inputs}x{outputs}"
        print(f"{case}, {options.tokens} tokens, density {options.density}", flush=True)
        sparse, dense, name = measure(options, inputs, outputs)
        ratio = statistics.median(dense) / statistics.median(sparse)
        print(f"  {name}: {statistics.median(sparse):.3f} ms (min {min(sparse):.3f}, max {max(sparse):.3f}), dense "
              f"{statistics.median(dense):.3f} ms, ratio {ratio:.2f}", flush=True)
        method = "pytorch-bsr" if options.density == 0.5 else f"pytorch-bsr density {options.density}"
        rows += [row(case, "pytorch-dense", dense), row(case, method, sparse, "pytorch-dense", ratio)]
    if options.json:
        write(options.json, rows, about)


if __name__ == "__main__":
    main()
