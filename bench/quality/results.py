"""Results files of the form that docs/formats.md describes, and the tables made from them."""

import json
import os
import pathlib
import re
import statistics

LOSSES = ("val_loss", "bits_per_byte")  # their ratio is the difference to the baseline


class Results:
    """The rows of one file. A run is in it when its validation loss is there under the same command."""

    def __init__(self, out, base=None):
        self.out = pathlib.Path(out)
        source = self.out if self.out.exists() else base
        self.file = json.loads(pathlib.Path(source).read_text()) if source else None

    @property
    def rows(self):
        return self.file["rows"] if self.file else []

    def loss(self, run):
        for row in self.rows:
            if row["metric"] == "val_loss" and row["command"] == run.command and row["case"] == run.case:
                return row["median"]
        return None

    def has(self, run):
        return any(_key(row) == _run_key(run, "val_loss") and row["command"] == run.command for row in self.rows)

    def copy(self, run):
        """Gives `run` the rows of another one with the same command: the best of a grid, which has two names."""
        sources = [row for row in self.rows if row["command"] == run.command and row["case"] == run.case]
        if not any(row["metric"] == "val_loss" for row in sources):
            return False
        metrics = {row["metric"]: row for row in sources}
        self._put(run, [{**row, "method": run.experiment.method,
                         "baseline": run.experiment.baseline if metric in LOSSES else "", "ratio": None}
                        for metric, row in metrics.items()])
        return True

    def add(self, run, folder, step_metric):
        """The rows of a finished run, from its folder. Returns its validation loss."""
        evaluation = last_evaluation(folder)
        environment = json.loads((folder / "environment.json").read_text())
        steps = _json_lines(folder / "metrics.jsonl")
        # The first steps of a run compile and choose kernels.
        times = sorted(line["step_ms"] for line in steps[len(steps) // 10:])
        spreads = {metric: (evaluation[name],) * 3 for metric, name in
                   (("val_loss", "loss"), ("bits_per_byte", "bits_per_byte")) if name in evaluation}
        spreads[step_metric] = (statistics.median(times), times[0], times[-1])
        spreads["tokens"] = (steps[-1]["tokens"],) * 3
        where = {"device": environment["device"], "commit": environment["commit"], "command": run.command}
        if self.file is None:
            self.file = {"device": where["device"], "driver": "", "libraries": environment.get("libraries", {}),
                         "commit": where["commit"], "command": "filigree train, a run a row", "rows": []}
        self._put(run, [{"case": run.case, "method": run.experiment.method, "config": run.row_config, "metric": metric,
                         "median": median, "min": low, "max": high,
                         "baseline": run.experiment.baseline if metric in LOSSES else "", "ratio": None, **where}
                        for metric, (median, low, high) in spreads.items()])
        return evaluation["loss"]

    def _put(self, run, rows):
        keys = {json.dumps(_key(row)) for row in rows}
        kept = [row for row in self.rows if json.dumps(_key(row)) not in keys]
        self.file["rows"] = kept + rows
        self._set_ratios(run.case)
        self.save()

    def _set_ratios(self, case):
        """A baseline may end after the runs that stand beside it."""
        medians = {json.dumps(_key(row)): row["median"] for row in self.rows if row["case"] == case}
        for row in self.rows:
            if row["case"] == case and row["baseline"] and row["metric"] in LOSSES:
                baseline = medians.get(json.dumps(_key({**row, "method": row["baseline"]})))
                row["ratio"] = None if baseline is None else row["median"] - baseline

    def save(self):
        self.out.parent.mkdir(parents=True, exist_ok=True)
        aside = self.out.with_name(self.out.name + ".tmp")
        aside.write_text(json.dumps(self.file, indent=1, ensure_ascii=False) + "\n")
        os.replace(aside, self.out)


def _key(row):
    return [row["case"], row["method"], row["config"], row["metric"]]


def _run_key(run, metric):
    return [run.case, run.experiment.method, run.row_config, metric]


def _json_lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def last_evaluation(folder):
    lines = [line for line in _json_lines(folder / "eval.jsonl") if line["task"] == "perplexity"]
    return lines[-1] if lines else None


def is_finished(run, folder):
    evaluation = last_evaluation(folder)
    return evaluation is not None and evaluation["step"] == run.steps and evaluation["loss"] is not None


def summary(plan, results):
    """Markdown: for each case its grids, then its methods group by group, in the table's order."""
    parts = []
    for case in dict.fromkeys(e.case for e in plan.experiments):
        name = plan.case_name(case)
        losses = {(row["method"], row["config"]["seed"]): row for row in results.rows
                  if row["case"] == name and row["metric"] == "val_loss"}
        bits = {(row["method"], row["config"]["seed"]): row["median"] for row in results.rows
                if row["case"] == name and row["metric"] == "bits_per_byte"}
        members = [e for e in plan.experiments if e.case == case]
        parts.append(_grid_table(name, members, losses))
        for group in dict.fromkeys(e.group for e in members if not e.grid):
            parts.append(_method_table(name, [e for e in members if e.group == group and not e.grid], losses, bits))
    return "\n\n".join(part for part in parts if part)


def _table(head, lines):
    return "\n".join("| " + " | ".join(line) + " |" for line in [head, ["---"] * len(head)] + lines)


def _grid_table(case, experiments, losses):
    rates = sorted({e.rate for e in experiments if e.grid}, key=float)
    lines = []
    for grid in dict.fromkeys(e.grid for e in experiments if e.grid):
        found = {e.rate: losses[e.method, seed]["median"] for e in experiments for seed in e.seeds
                 if e.grid == grid and (e.method, seed) in losses}
        if found:
            best = min(found, key=found.get)
            texts = {rate: f"**{loss:.4f}**" if rate == best else f"{loss:.4f}" for rate, loss in found.items()}
            lines.append([grid] + [texts.get(rate, "") for rate in rates])
    return _table([f"{case}: loss at learning rate"] + rates, lines) if lines else ""


def _method_table(case, experiments, losses, bits):
    seeds = sorted({seed for e in experiments for seed in e.seeds})
    lines = []
    for e in experiments:
        rows = {seed: losses[e.method, seed] for seed in e.seeds if (e.method, seed) in losses}
        if not rows:
            continue
        rate = re.search(r"train\.lr=(\S+)", next(iter(rows.values()))["command"])
        gaps = [row["ratio"] for row in rows.values() if row["ratio"] is not None]
        gap = f"{statistics.median(gaps):+.4f}" if gaps else ""
        if len(gaps) > 1:
            gap += f" ({min(gaps):+.4f} to {max(gaps):+.4f})"
        own_bits = [bits[e.method, seed] for seed in rows if (e.method, seed) in bits]
        lines.append([e.method, rate.group(1) if rate else ""]
                     + [f"{rows[seed]['median']:.4f}" if seed in rows else "" for seed in seeds]
                     + [f"{gap} to {e.baseline}" if gap else "",
                        f"{statistics.median(own_bits):.4f}" if own_bits else ""])
    head = [case, "rate"] + [f"seed {seed}" for seed in seeds] + ["difference, median", "bits a byte"]
    return _table(head, lines) if lines else ""
