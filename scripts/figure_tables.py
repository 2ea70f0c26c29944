"""The tables of measured figures in README.md and docs/, made from docs/results/*.json; see scripts/figures."""

import collections
import json
import pathlib
import re

RESULTS = pathlib.Path(__file__).resolve().parent.parent / "docs" / "results"
NAMES = {"quickstart": "quickstart model", "gpt2-124m": "GPT-2 124M", "gpt2-355m": "GPT-2 355M",
         "gpt2-1.5b": "GPT-2 1.5B"}
PRODUCTS = (("forward", "forward_ms"), ("dX", "dx_ms"), ("dW", "dw_ms"))
LOSSES = ("val_loss", "bits_per_byte")


class MissingRow(Exception):
    """The results do not hold what a table shows."""


def ratio_of(metric, value, baseline):
    """A row's ratio, as src/benchmark/results.cpp computes it; of losses, which bench/quality writes, the difference."""
    if metric in LOSSES:
        return value - baseline
    smaller_is_better = metric.endswith(("_ms", "_s_per_step")) or metric == "first_step_s"
    return baseline / value if smaller_is_better else value / baseline


class Results:
    """One file of docs/results. One that is not there yet has no rows."""

    def __init__(self, name):
        self.name = name
        file = RESULTS / name
        self.rows = json.loads(file.read_text()).get("rows", []) if file.exists() else []

    def find(self, metric, method=None, case=None, **config):
        """All rows with these values; `case` is a pattern that the whole name matches."""
        return [row for row in self.rows if row["metric"] == metric and (method is None or row["method"] == method)
                and (case is None or re.fullmatch(case, row["case"]))
                and all(row["config"].get(key) == value for key, value in config.items())]

    def row(self, metric, method, case, **config):
        found = self.find(metric, method, re.escape(case), **config)
        if len(found) != 1:
            raise MissingRow(f"docs/results/{self.name}: {len(found)} rows instead of one are of {case}, {method}, "
                             f"{metric}{''.join(f', {key} {value}' for key, value in config.items())}")
        return found[0]

    def twin(self, row, method, metric=None):
        """The row of another method in the same case and config."""
        same = [other for other in self.find(metric or row["metric"], method, re.escape(row["case"]))
                if other["config"] == row["config"]]
        if len(same) != 1:
            raise MissingRow(f"docs/results/{self.name}: {row['case']} has {len(same)} rows of {method}, "
                             f"{metric or row['metric']} beside {row['method']}")
        return same[0]

    def ratio(self, row, baseline):
        if row["baseline"] == baseline and row["ratio"] is not None:
            return row["ratio"]
        return ratio_of(row["metric"], row["median"], self.twin(row, baseline)["median"])


def markdown(head, lines):
    return "\n".join("| " + " | ".join(line) + " |" for line in [head, ["---"] * len(head), *lines])


def span(values, form="{:.2f}"):
    """1.81 to 2.01; one number where all are alike, nothing where there are none."""
    texts = [form.format(value) for value in ((min(values), max(values)) if values else ())]
    return " to ".join(dict.fromkeys(texts))


def whole(value):
    return f"{value:,.0f}"


def model_name(row):
    return NAMES.get(row["case"], row["case"])


def peer_name(row):
    """PyTorch 2.15, where the row says which one it was."""
    version = re.match(r"\d+\.\d+", row.get("libraries", {}).get("torch", ""))
    return "PyTorch" + (" " + version.group() if version else "")


def widths_of(row):
    """INPUTSxOUTPUTS at the end of a product's case."""
    return tuple(int(width) for width in row["case"].rsplit("-", 1)[1].split("x"))


def whole_batches(rows):
    """Of the rows of products those with the most tokens, by which training is meant and not decoding."""
    tokens = max((row["config"]["batch"] for row in rows), default=0)
    return [row for row in rows if row["config"]["batch"] == tokens]


def cpu_steps():
    cpu = Results("cpu.json")
    lines, peers = [], set()
    for case in ("quickstart", "gpt2-124m"):
        for precision in ("fp32", "bf16"):
            dense = cpu.row("step_ms", "dense", case, precision=precision)
            others = {method: cpu.twin(dense, method) for method in ("pytorch", "slope", "block")}
            peers.add(peer_name(others["pytorch"]))
            config = dense["config"]
            lines.append([f"{model_name(dense)}, {config['batch']} x {config['sequence']} tokens, {precision}",
                          *(whole(row["median"]) for row in (others["pytorch"], dense, others["slope"], others["block"])),
                          *(f"{ratio:.2f}" for ratio in (cpu.ratio(dense, "pytorch"), cpu.ratio(others["slope"], "dense"),
                                                         cpu.ratio(others["block"], "dense")))])
    return markdown(["training step, milliseconds", " or ".join(sorted(peers)), "dense", "SLoPe 2:4", "block 16x16, half",
                     "dense over PyTorch", "SLoPe over dense", "block over dense"], lines)


def cpu_ratios(methods, with_steps):
    """How many times as fast as dense: products as the engine runs them, steps, decoding. methods: (title, name)."""
    cpu = Results("cpu.json")
    columns = [(title, method, precision) for title, method in methods for precision in ("fp32", "bf16")]
    lines = []

    def add(label, metric, case=None, suffix=""):
        cells = []
        for _, method, precision in columns:
            rows = whole_batches(cpu.find(metric, method + suffix, case, precision=precision))
            cells.append(span([cpu.ratio(row, "dense") for row in rows]))
        lines.append([label, *cells])

    products = whole_batches(cpu.find("forward_ms", methods[0][1] + "-planned", r"matmul-\d+x\d+"))
    widths = [width for row in products for width in widths_of(row)]
    for label, metric in PRODUCTS:
        add(f"{label}, {span(widths, '{}')} wide, {products[0]['config']['batch']} tokens", metric, r"matmul-\d+x\d+",
            "-planned")
    if with_steps:
        for case in NAMES:
            if cpu.find("step_ms", methods[0][1], re.escape(case)):
                add(f"training step, {NAMES[case]}", "step_ms", re.escape(case))
    for row in cpu.find("prefill_ms", methods[0][1]):
        case = re.escape(row["case"])
        add(f"prompt of {row['config']['sequence']} tokens, {model_name(row)}", "prefill_ms", case)
        add(f"decoding, {model_name(row)}", "decode_tokens_per_s", case)
        add(f"bytes that decoding reads, of dense, {model_name(row)}", "infer_bytes", case)
    return markdown(["times as fast as dense", *(f"{title}{precision}" for title, _, precision in columns)], lines)


def learning_rate(row):
    return re.search(r"train\.lr=(\S+)", row["command"]).group(1)


QUICKSTART = "quickstart-1.2M-tokens"


def quickstart_seeds():
    quality = Results("quality.json")
    kinds = {title: {row["config"]["seed"]: row for row in quality.find("val_loss", method, re.escape(QUICKSTART))}
             for title, method in (("dense", "dense"), ("SLoPe", "slope"))}
    seeds = sorted(kinds["dense"].keys() & kinds["SLoPe"].keys())
    lines = [[f"{title}, {learning_rate(rows[seeds[0]])}", *(f"{rows[seed]['median']:.3f}" for seed in seeds)]
             for title, rows in kinds.items()]
    return markdown(["validation loss in nats", *(f"seed {seed}" for seed in seeds)], lines)


def quickstart_rates():
    quality = Results("quality.json")
    kinds = {}
    for title, method in (("dense", "dense"), ("SLoPe", "slope")):
        rows = [row for row in quality.find("val_loss", case=re.escape(QUICKSTART), seed=1)
                if re.fullmatch(method + r"(-lr\S+)?", row["method"])]
        kinds[title] = {learning_rate(row): row["median"] for row in rows}
    rates = sorted({rate for losses in kinds.values() for rate in losses}, key=float)
    return markdown(["seed 1, learning rate", *rates],
                    [[title, *(f"{losses[rate]:.3f}" if rate in losses else "" for rate in rates)]
                     for title, losses in kinds.items()])


NANO = "nano-25m-88M-tokens"
NANO_METHODS = {"dense": "dense", "slope": "SLoPe 2:4", "block-16": "block 16x16", "block-128": "block 128x128",
                "dense-steps0.8": "dense, 0.8 of the steps", "dense-half-depth": "dense, half the layers",
                "dense-half-width": "dense, half the width"}


def quality_of_methods():
    """Final losses, and their distance from the dense model's of the same seed; each at the best rate of one grid."""
    quality = Results("quality.json")
    dense = {row["config"]["seed"]: row["median"] for row in quality.find("val_loss", "dense", re.escape(NANO))}
    lines = []
    for method, title in NANO_METHODS.items():
        rows = sorted(quality.find("val_loss", method, re.escape(NANO)), key=lambda row: row["config"]["seed"])
        above = [row["median"] - dense[row["config"]["seed"]] for row in rows if row["config"]["seed"] in dense]
        lines.append([title, learning_rate(rows[0]), " ".join(f"{row['median']:.3f}" for row in rows),
                      "" if method == "dense" else f"{sum(above) / len(above):+.3f}"])
    return markdown(["25M model, 88M tokens", "learning rate", "validation loss, a seed each", "over dense, nats"], lines)


def quality_of_rates():
    quality = Results("quality.json")
    lines, rates = [], ("1.5e-3", "3e-3", "6e-3", "1.2e-2")
    for method, title in NANO_METHODS.items():
        rows = [quality.find("val_loss", f"{method}-lr{rate}", re.escape(NANO), seed=1) for rate in rates]
        if any(rows):
            lines.append([title, *(f"{row[0]['median']:.3f}" if row else "" for row in rows)])
    return markdown(["seed 1, learning rate", *rates], lines)


def gpu_steps():
    gpu = Results("h200-dense.json")
    lines, peers = [], set()
    for case, method in (("gpt2-124m", "dense"), ("gpt2-355m", "dense"), ("gpt2-1.5b", "dense-recompute-norm")):
        peer = gpu.row("tokens_per_s", "pytorch", case)
        peers.add(peer_name(peer))
        own = gpu.twin(peer, method)
        pairs = {metric: (gpu.twin(peer, "pytorch", metric)["median"], gpu.twin(peer, method, metric)["median"])
                 for metric in ("peak_bytes", "first_step_s")}
        gigabytes = [value / 1e9 for value in pairs["peak_bytes"]]
        lines.append([f"{model_name(peer)}, {peer['config']['batch']} x {peer['config']['sequence']}",
                      whole(peer["median"]), whole(own["median"]), f"{gpu.ratio(own, 'pytorch'):.2f}",
                      whole(gpu.twin(peer, method + "-deterministic")["median"]),
                      whole(gpu.twin(peer, method, "model_tflops")["median"]),
                      f"{gigabytes[0]:.1f} / {gigabytes[1]:.1f}",
                      "{:.0f} / {:.1f}".format(*pairs["first_step_s"])])
    return markdown(["", f"{' or '.join(sorted(peers))}, tokens/s", "filigree", "ratio", "deterministic", "model TFLOP/s",
                     "peak GB, PyTorch / filigree", "first step s"], lines)


def natural(text):
    """opt-2.7b before opt-13b."""
    return [float(part) if part[:1].isdigit() else part for part in re.split(r"(\d+(?:\.\d+)?)", text)]


def gpu_widths():
    gpu = Results("h200-dense.json")
    ceiling = Results("h200-slope.json").row("matmul_tflops", "dense", "ceiling", precision="bf16")["median"]
    rows = sorted(gpu.find("step_ms", "dense", r"(opt|llama|mistral).*"), key=lambda row: natural(row["case"]))
    lines = []
    for row in rows:
        config, speed = row["config"], gpu.twin(row, "dense", "model_tflops")["median"]
        lines.append([f"{row['case']}, {config['layers']} layers, {config['batch']} x {config['sequence']}",
                      whole(row["median"]), whole(speed), f"{100 * speed / ceiling:.0f} %"])
    return markdown(["full width, some layers", "step, ms", "model TFLOP/s", f"of the fastest product ({ceiling:.0f})"],
                    lines)


def gpu_kernels():
    families = collections.defaultdict(list)
    for row in Results("h200-dense.json").find("gb_per_s", "filigree", "kernel-.*"):
        family, size = re.fullmatch(r"kernel-(.*)-(\d+x\d+|gpt2-.*)", row["case"]).groups()
        families[family].append((100 * row["ratio"], size))
    return markdown(["kernel", "% of a copy's speed", "slowest at"],
                    [[family.replace("-", " "), span([share for share, _ in found], "{:.0f}"), min(found)[1]]
                     for family, found in sorted(families.items(), key=lambda item: -min(item[1])[0])])


def gpu_curves():
    gpu = Results("h200-dense.json")
    lines = []
    for label, method, precision in (("filigree, fp32", "dense", "fp32"), ("filigree, bf16", "dense", "bf16"),
                                     ("compiled PyTorch, bf16", "pytorch-compiled", "bf16")):
        row = gpu.row("loss_distance", method, "gpt2-124m", precision=precision)
        form = "{:.4f}" if precision == "bf16" else "{:.1e}"
        lines.append([label, form.format(row["median"]), form.format(row["max"])])
    return markdown(["nats from PyTorch eager in the same precision", "mean", "largest"], lines)


def products_by_shape(results, method, baseline, case):
    rows = sorted(whole_batches(results.find("forward_ms", method, case)),
                  key=lambda row: (max(widths_of(row)), widths_of(row)))
    lines = [["x".join(map(str, widths_of(row))),
              *(f"{results.ratio(results.twin(row, method, metric), baseline):.2f}" for _, metric in PRODUCTS)]
             for row in rows]
    head = f"inputs x outputs, {rows[0]['config']['batch']} tokens"
    return markdown([head, *(label for label, _ in PRODUCTS)], lines)


def method_label(method, of):
    """"", or the adapters of "slope-r1.56"."""
    return f", adapters of {method[len(of) + 2:]} % of the width" if method.startswith(of + "-r") else ""


def gpu_steps_of(file, method, label):
    gpu = Results(file)
    lines = []
    rows = [row for row in gpu.find("step_ms") if row["method"] == method or row["method"].startswith(method + "-r")]
    for row in sorted(rows, key=lambda row: (natural(row["case"]), -row["config"]["layers"], row["method"])):
        config = row["config"]
        lines.append([f"{model_name(row)}, {config['layers']} layers, {config['batch']} x {config['sequence']}"
                      + method_label(row["method"], method),
                      whole(gpu.twin(row, "dense")["median"]), whole(row["median"]), f"{gpu.ratio(row, 'dense'):.2f}",
                      f"{gpu.ratio(gpu.twin(row, row['method'], 'peak_bytes'), 'dense'):.2f}"])
    return markdown(["training step", "dense, ms", f"{label}, ms", "times as fast", "peak bytes, of dense"], lines)


def gpu_inference(file, method):
    """Reading prompts and decoding after them."""
    gpu = Results(file)
    rows = [row for row in gpu.find("prefill_ms") if row["method"] == method or row["method"].startswith(method + "-r")]
    lines = []
    for row in sorted(rows, key=lambda row: (natural(row["case"]), row["config"]["sequence"], row["config"]["batch"],
                                             row["method"])):
        config = row["config"]
        decoded = gpu.twin(row, row["method"], "decode_tokens_per_s")
        lines.append([f"{model_name(row)}, {config['layers']} layers, {config['batch']} x {config['sequence']}"
                      + method_label(row["method"], method),
                      f"{gpu.twin(row, 'dense')['median']:.1f}", f"{gpu.ratio(row, 'dense'):.2f}",
                      whole(gpu.twin(decoded, "dense")["median"]), f"{gpu.ratio(decoded, 'dense'):.2f}",
                      f"{gpu.ratio(gpu.twin(row, row['method'], 'infer_bytes'), 'dense'):.2f}"])
    return markdown(["prompts", "read by dense, ms", "times as fast", "decoded by dense, tokens/s", "times as fast",
                     "bytes of the model, of dense"], lines)


def steps_of_methods():
    """Whole steps of both sparse methods, on the processor and on a GPU."""
    lines = []
    cpu = Results("cpu.json")
    for case in ("quickstart", "gpt2-124m"):
        for dense in cpu.find("step_ms", "dense", case):
            beside = [cpu.twin(dense, method) for method in ("slope", "block")]
            lines.append([f"{model_name(dense)}, 2 cores with AVX-512", dense["config"]["precision"],
                          *(f"{cpu.ratio(row, 'dense'):.2f}" for row in beside)])
    ratios = {}  # of a model on the GPU: method -> ratio, from whichever file has it
    for file in (Results("h200-slope.json"), Results("h200-block.json")):
        for method in ("slope", "block"):
            for row in file.find("step_ms", method):
                config = row["config"]
                label = (row["case"], f"{model_name(row)}, {config['layers']} layers, {config['batch']} x "
                                      f"{config['sequence']}, H200", config["precision"])
                ratios.setdefault(label, {})[method] = f"{file.ratio(row, 'dense'):.2f}"
    lines += [[label, precision, found.get("slope", ""), found.get("block", "")]
              for (_, label, precision), found in sorted(ratios.items(), key=lambda item: natural(item[0][0]))]
    return markdown(["whole step, times as fast as dense", "precision", "`slope` 2:4", "`block`"], lines)


MODELS = ("opt-2.7b", "opt-6.7b", "opt-13b", "opt-30b", "opt-66b", "llama-3-8b", "mistral-7b")


def memory_of_models(name, methods):
    """Planned bytes of whole models, of the dense model's: training (without activations), and in use."""
    gpu = Results(name)
    lines = []
    for case in MODELS:
        cells = []
        for metric in ("train_memory_bytes", "infer_memory_bytes"):
            dense = gpu.row(metric, "dense", case)
            cells += [f"{dense['median'] / 1e9:.1f}",
                      *(f"{gpu.ratio(gpu.twin(dense, method), 'dense'):.3f}" for method, _ in methods)]
        lines.append([case, *cells])
    titles = [title for _, title in methods]
    return markdown(["whole model, bf16", "training, dense, GB", *titles, "in use, dense, GB", *titles], lines)


def network_of(case):
    """ "4 ranks, 200 Mb/s" of cpu-4-ranks-200mbit and what follows it, and the rate in bytes a second."""
    ranks, rate, unit = re.match(r"cpu-(\d+)-ranks(?:-(\d+)([mg])bit)?", case).groups()
    if rate is None:
        return f"{ranks} ranks", None
    factor, name = (1e6, "Mb/s") if unit == "m" else (1e9, "Gb/s")
    return f"{ranks} ranks, {rate} {name}", int(rate) * factor / 8


def exchange_rows(metric, case):
    """Rows of a results file, those of one case after the other, without the baseline."""
    results = Results("exchange.json")
    rows = [row for row in results.find(metric, case=case) if row["method"] != "dense"]
    return results, sorted(rows, key=lambda row: natural(row["case"]))


NOT_MEASURED = "not measured yet"


def exchange_bytes():
    results, rows = exchange_rows("bytes_sent", r"cpu-\d+-ranks")
    lines = []
    for row in rows:
        layers = results.twin(row, row["method"], "sparse_layers_bytes_sent")
        lines.append([f"`{row['method']}`, {network_of(row['case'])[0]}", f"{row['median'] / 1e6:.1f}",
                      f"{results.ratio(row, 'dense'):.3f}", f"{results.ratio(layers, 'dense'):.3f}"])
    return markdown(["sent by a rank in a step", "MB", "of `dense`", "sparse layers alone, of `dense`"],
                    lines or [[NOT_MEASURED, "", "", ""]])


def exchange_network():
    """Time over dense beside bytes over dense, which is what the model says where the network is slow."""
    results, rows = exchange_rows("exchange_ms", r"cpu-\d+-ranks-\d+[mg]bit(-topk)?")
    lines = []
    for row in rows:
        network, rate = network_of(row["case"])
        dense, sent = results.twin(row, "dense"), results.twin(row, row["method"], "bytes_sent")
        used = results.twin(row, "dense", "bytes_sent")["median"] / (dense["median"] / 1e3) / rate
        model, measured = results.ratio(sent, "dense"), row["median"] / dense["median"]
        lines.append([f"{network}, `{row['method']}`", f"{dense['median']:.0f}", f"{100 * used:.0f} %",
                      f"{row['median']:.0f}", f"{model:.3f}", f"{measured:.3f}", f"{100 * (measured / model - 1):+.1f} %"])
    return markdown(["exchange alone", "dense, ms", "of the set rate", "ms", "model: bytes, of dense", "time, of dense",
                     "above the model"], lines or [[NOT_MEASURED, *[""] * 6]])


def exchange_crossover():
    """The density at which top-k's lists take as long as dense sums, between the two that lie around it."""
    results, rows = exchange_rows("exchange_ms", r"cpu-\d+-ranks-\d+[mg]bit-topk")
    lines = []
    for case in dict.fromkeys(row["case"] for row in rows):
        points = sorted((float(row["method"].split("-")[1]), row["median"] / results.twin(row, "dense")["median"])
                        for row in rows if row["case"] == case)
        around = [(a, b) for a, b in zip(points, points[1:]) if a[1] <= 1 < b[1]]
        crossing = ""
        if around:
            (low, below), (high, above) = around[0]
            crossing = f"{low + (high - low) * (1 - below) / (above - below):.3f}"
        ranks = next(row["config"]["ranks"] for row in rows if row["case"] == case)
        lines.append([network_of(case)[0], ", ".join(f"{density:g}: {ratio:.2f}" for density, ratio in points),
                      crossing, f"{1 / ranks:.3f}"])
    return markdown(["top-k", "density: time, of dense", "as long as dense at", "by bytes"],
                    lines or [[NOT_MEASURED, "", "", ""]])


def exchange_steps():
    """Whole steps, the exchange after the backward pass, and beside it."""
    results, rows = exchange_rows("step_ms", r"cpu-\d+-ranks-\d+[mg]bit-step(-overlap)?")
    lines = []
    for row in rows:
        dense = results.twin(row, "dense")
        shares = [other for other in results.find("exchange_ms", "dense", re.escape(row["case"]))
                  if other["config"] == row["config"]]
        share = f"{100 * shares[0]['median'] / dense['median']:.0f} %" if shares else ""
        lines.append([f"{network_of(row['case'])[0]}, `{row['method']}`",
                      "beside" if row["case"].endswith("-overlap") else "after", f"{dense['median']:.0f}", share,
                      f"{row['median']:.0f}", f"{100 * (1 - row['median'] / dense['median']):.1f} %"])
    return markdown(["training step", "exchange", "dense, ms", "of it exchange", "ms", "time saved"],
                    lines or [[NOT_MEASURED, *[""] * 5]])


TABLES = {
    "exchange-bytes": exchange_bytes,
    "exchange-network": exchange_network,
    "exchange-crossover": exchange_crossover,
    "exchange-steps": exchange_steps,
    "steps-of-methods": steps_of_methods,
    "cpu-steps": cpu_steps,
    "cpu-products": lambda: cpu_ratios((("SLoPe ", "slope"), ("block ", "block")), False),
    "slope-cpu": lambda: cpu_ratios((("", "slope"),), True),
    "block-cpu": lambda: cpu_ratios((("", "block"),), True),
    "quickstart-seeds": quickstart_seeds,
    "quickstart-rates": quickstart_rates,
    "quality-methods": quality_of_methods,
    "quality-rates": quality_of_rates,
    "gpu-steps": gpu_steps,
    "gpu-widths": gpu_widths,
    "gpu-kernels": gpu_kernels,
    "gpu-curves": gpu_curves,
    "slope-gpu": lambda: products_by_shape(Results("h200-slope.json"), "slope-planned", "dense", r"matmul-\d+x\d+"),
    "slope-gpu-steps": lambda: gpu_steps_of("h200-slope.json", "slope", "SLoPe"),
    "slope-gpu-inference": lambda: gpu_inference("h200-slope.json", "slope"),
    "gpu-block-products": lambda: products_by_shape(Results("h200-block.json"), "block-planned", "dense",
                                                    r"matmul-\d+x\d+"),
    "slope-memory": lambda: memory_of_models("h200-slope.json", (("slope", "SLoPe"), ("slope-r1.56", "rank 1.56 %"),
                                                                 ("slope-r6.25", "rank 6.25 %"))),
    "block-memory": lambda: memory_of_models("h200-block.json", (("block", "block"),)),
    "block-gpu-steps": lambda: gpu_steps_of("h200-block.json", "block", "block"),
    "block-gpu-inference": lambda: gpu_inference("h200-block.json", "block"),
}
