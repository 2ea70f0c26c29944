#!/usr/bin/env python3
"""Runs a table of training experiments, several side by side, and writes their results as each one ends.

    python3 bench/quality/run.py --filigree build-cuda/filigree --data data/medium --jobs 6 --out quality.json

Runs whose rows are in the results already are left out, so that the same command goes on where it stopped. With
--limit-seconds it stops in time: nothing is begun that would not end, and what is still running writes a checkpoint,
from which the next call goes on if --runs is still there. A run that fails is reported, and the others go on; the next
call tries it again. Exit code: 0, 1 if a run failed, 2 for a mistake of the user, 3 when interrupted.

Needs Python 3.11 and nothing else.
"""

import argparse
import fnmatch
import importlib.util
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import time

from experiment import BestRate, rate_text
from plan import Plan, UsageError
from results import Results, is_finished, summary

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
STARTED = time.monotonic()
GRACE_SECONDS = 20.0  # for a step, its checkpoint and the end of the process
START_SECONDS = 8.0  # a run's beginning and end, besides its steps


def arguments():
    parser = argparse.ArgumentParser(description="Runs a table of training experiments.")
    parser.add_argument("--filigree", default=str(ROOT / "build" / "filigree"), help="the program")
    parser.add_argument("--data", default=str(ROOT / "data" / "medium"),
                        help="a folder made by `filigree prepare`; default: data/medium")
    parser.add_argument("--table", default=str(HERE / "experiments.py"), help="the experiments")
    parser.add_argument("--scale", default="", help="a scale of the table, such as tiny")
    parser.add_argument("--ratio", action="append", default=[], metavar="METHOD=R",
                        help="the method takes R times as many steps in the dense model's time")
    parser.add_argument("--only", action="append", default=[], metavar="PATTERN",
                        help="runs whose group, case or method fits, such as 'slope*'; may be repeated")
    parser.add_argument("--out", default=str(ROOT / "docs" / "results" / "quality.json"), help="the results file")
    parser.add_argument("--base", default=str(ROOT / "docs" / "results" / "quality.json"),
                        help="results to begin with where --out does not exist yet; '' for none")
    parser.add_argument("--runs", default=str(ROOT / "runs" / "quality"), help="where runs have their folders")
    parser.add_argument("--keep", action="store_true", help="keep the checkpoints of finished runs")
    parser.add_argument("--jobs", type=int, default=1, help="runs side by side")
    parser.add_argument("--threads", type=int, help="processor threads of each; default: its share, on a GPU 2 at most")
    parser.add_argument("--device", choices=["auto", "cpu", "cuda"], default="auto", help="run.device")
    parser.add_argument("--limit-seconds", type=float, default=float("inf"), help="time for all of it")
    parser.add_argument("--tflops", type=float, default=250.0,
                        help="model TFLOP/s that all runs together reach, until some have been measured")
    parser.add_argument("--check", action="store_true", help="only lay every configuration out: `filigree inspect`")
    parser.add_argument("--list", action="store_true", help="only say what is done, and how long the rest would take")
    parser.add_argument("--summarise", action="store_true", help="only print tables of --out, as Markdown")
    return parser.parse_args()


class Harness:
    def __init__(self, options, plan, results):
        self.options = options
        self.plan = plan
        self.results = results
        self.runs = pathlib.Path(options.runs).absolute()
        self.failed = set()  # commands
        self.active = []
        self.flops = options.tflops * 1e12
        self.done_flops = self.done_seconds = 0.0
        self.interrupted = False

    # --- what there is to do

    def pending(self):
        """All that is neither done nor failed nor running: (run, or a text that says what it waits for; experiment).
        A run whose results another name has is done here."""
        for experiment, seed in self.plan.entries:
            if not self.wanted(experiment):
                continue
            run = self.plan.resolve(experiment, seed, self.results, self.failed)
            if not isinstance(run, str):
                active = any(job["run"].command == run.command for job in self.active)
                if active or self.results.has(run) or run.command in self.failed:
                    continue
                if self.results.copy(run):
                    self.say(f"{run.name}: is one of the grid's")
                    continue
            yield run, experiment

    def wanted(self, experiment):
        texts = (experiment.group, experiment.case.name, experiment.method)
        return not self.options.only or any(fnmatch.fnmatchcase(text, pattern) for text in texts
                                            for pattern in self.options.only)

    def fits(self, run):
        seconds = START_SECONDS + run.flops * (len(self.active) + 1) / self.flops
        return time.monotonic() - STARTED + seconds < self.options.limit_seconds - GRACE_SECONDS

    # --- running

    def execute(self):
        signal.signal(signal.SIGINT, self.interrupt)
        signal.signal(signal.SIGTERM, self.interrupt)
        self.start_runs()
        last = time.monotonic()
        while self.active:
            time.sleep(0.05)
            now = time.monotonic()
            for job in self.active:
                job["share"] += (now - last) / len(self.active)  # of the device's time
            last = now
            ended = [job for job in self.active if job["process"].poll() is not None]
            for job in ended:
                self.active.remove(job)
                self.end(job)
            if self.interrupted or now - STARTED > self.options.limit_seconds - GRACE_SECONDS:
                self.stop_runs()
            elif ended:
                self.start_runs()
        return self.report()

    def start_runs(self):
        for run, _ in self.pending():
            if len(self.active) >= self.options.jobs or self.interrupted:
                break
            if not isinstance(run, str) and self.fits(run):
                self.start(run)

    def start(self, run):
        folder = self.runs / run.folder_name
        if is_finished(run, folder):
            self.collect(run, folder, "found in " + str(folder))
            return
        self.runs.mkdir(parents=True, exist_ok=True)
        log = folder.with_name(folder.name + ".log")
        with open(log, "w") as output:
            process = subprocess.Popen(
                [self.options.filigree, "train", str(run.config), *sets(run, self.options), "--out", str(folder),
                 "--resume"],
                stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, start_new_session=True,
                env=os.environ | {"OMP_NUM_THREADS": str(self.options.threads), "OMP_WAIT_POLICY": "passive"})
        self.active.append({"run": run, "process": process, "folder": folder, "log": log, "share": 0.0,
                            "start": time.monotonic(), "signals": 0})

    def end(self, job):
        run, code = job["run"], job["process"].returncode
        if code == 0 and is_finished(run, job["folder"]):
            self.done_flops += run.flops
            self.done_seconds += max(job["share"], 0.01)
            self.flops = self.done_flops / self.done_seconds
            self.collect(run, job["folder"], f"{time.monotonic() - job['start']:.0f} s")
        elif job["signals"] and (code == 3 or code < 0):
            self.say(f"{run.name}: stopped, unfinished")
        else:
            self.failed.add(run.command)
            text = [line for line in job["log"].read_text(errors="replace").splitlines() if line.strip()]
            what = f"ended with {code}" if code else "has no finite validation loss of its last step"
            self.say(f"FAILED: {run.name}: {what}; the end of {job['log']}:\n    " + "\n    ".join(text[-3:]))

    def collect(self, run, folder, how):
        loss = self.results.add(run, folder, "step_ms" if self.options.jobs == 1 else "shared_step_ms")
        if not self.options.keep:
            shutil.rmtree(folder / "checkpoints", ignore_errors=True)
        self.say(f"{run.name}: {loss:.4f} ({how})")

    def stop_runs(self):
        """A signal to write a checkpoint, and, when that takes too long, one that cannot be refused."""
        for job in self.active:
            if job["signals"] == 0:
                job["process"].terminate()
                job["signals"], job["stopped"] = 1, time.monotonic()
            elif job["signals"] == 1 and time.monotonic() - job["stopped"] > GRACE_SECONDS - 4:
                job["process"].kill()
                job["signals"] = 2

    def interrupt(self, *_):
        self.interrupted = True

    # --- saying

    def say(self, text):
        print(f"[{time.monotonic() - STARTED:5.0f} s] {text}", flush=True)

    def report(self):
        rest = list(self.pending())
        wanted = [e for e, _ in self.plan.entries if self.wanted(e)]
        self.say(f"{len(wanted) - len(rest) - len(self.failed)} done, {len(self.failed)} failed, {len(rest)} to do")
        for reason in sorted({run for run, _ in rest if isinstance(run, str)}):
            self.say(f"{sum(run == reason for run, _ in rest)} wait for {reason}")
        if self.done_seconds:
            self.say(f"together {self.flops / 1e12:.3g} model TFLOP/s, {self.done_seconds:.0f} s in runs that ended")
        for best in dict.fromkeys(e.rate for e in wanted if isinstance(e.rate, BestRate)):
            choice = self.plan.best_rate(best, self.results, self.failed)
            if not isinstance(choice, str) and choice[1]:
                self.say(f"the best rate of {best.grid}, {rate_text(choice[0])}, is at the edge of its grid")
        if self.interrupted:
            return 3
        return 1 if self.failed else 0


def sets(run, options):
    """All that stands behind --set: what the command in the results says, and where the data is."""
    data = pathlib.Path(options.data).absolute()
    settings = {"data.train": f"{data}/train*.bin", "data.val": f"{data}/val*.bin", "run.device": options.device}
    return [word for key, value in (settings | run.settings).items() for word in ("--set", f"{key}={value}")]


def check(plan, harness, options):
    """Whether filigree takes every configuration, with any rate of those that wait for one."""
    problems = 0
    for experiment, seed in plan.entries:
        if seed != experiment.seeds[0] or not harness.wanted(experiment):
            continue
        run = plan.run(experiment, seed, experiment.rate if isinstance(experiment.rate, str) else None)
        words = [options.filigree, "inspect", str(run.config), *sets(run, options), "--json"]
        result = subprocess.run(words, capture_output=True, text=True)
        if result.returncode:
            problems += 1
            print(f"FAILED: {run.name}: {result.stderr.strip()}")
            continue
        parameters = json.loads(result.stdout)["parameters"]
        kept, dense = (parameters[name] / 1e6 for name in ("kept", "dense"))
        print(f"{run.case:34} {experiment.method:34} {kept:8.3f} of {dense:.3f} million parameters kept")
    return 2 if problems else 0


def show(plan, harness, options):
    """For each group what is done, and the time that the rest takes at --tflops."""
    total = 0.0
    for group in dict.fromkeys(e.group for e in plan.experiments):
        runs = done = seconds = 0
        for experiment, seed in plan.entries:
            if experiment.group != group or not harness.wanted(experiment):
                continue
            runs += 1
            run = plan.resolve(experiment, seed, harness.results, set())
            if isinstance(run, str):
                run = plan.run(experiment, seed, None)
                best = experiment.rate
                # A member of a grid under its plain name costs nothing.
                twins = [plan.run(experiment, seed, rate_text(rate * best.factor)).command
                         for rate, _ in plan.grid_runs(best.case, best.grid)]
                if any(member.command in twins for _, member in plan.grid_runs(best.case, best.grid)):
                    continue
            if harness.results.loss(run) is not None:
                done += 1
            else:
                seconds += run.flops / options.tflops / 1e12
        total += seconds
        if runs:
            print(f"{group:24} {runs:3} runs, {done:3} done, the rest {seconds:6.0f} s")
    print(f"{'together':24} {total:26.0f} s at {options.tflops:g} model TFLOP/s")
    return 0


def load_plan(options):
    data = pathlib.Path(options.data)
    try:
        vocab = json.loads((data / "data.json").read_text())["vocab"]
    except (OSError, ValueError, KeyError) as error:
        raise UsageError(f"--data {data}: not a folder made by `filigree prepare`: {error}") from error
    path = pathlib.Path(options.table).resolve()
    if not path.is_file():
        raise UsageError(f"--table {path}: no such file")
    spec = importlib.util.spec_from_file_location("table", path)
    table = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(table)
    ratios = {}
    for text in options.ratio:
        method, _, ratio = text.partition("=")
        try:
            ratios[method] = float(ratio)
        except ValueError as error:
            raise UsageError(f"--ratio {text}: expected METHOD=NUMBER, such as slope=1.2") from error
    scales = getattr(table, "SCALES", {})
    if options.scale and options.scale not in scales:
        raise UsageError(f"--scale {options.scale}: the table has {', '.join(scales) or 'none'}")
    return Plan(table.experiments(ratios), path.parent, ROOT, vocab, options.scale, scales.get(options.scale))


def main():
    options = arguments()
    cores = len(os.sched_getaffinity(0))
    gpu = options.device == "cuda" or (options.device == "auto" and shutil.which("nvidia-smi"))
    if options.threads is None:
        options.threads = max(1, min(2 if gpu else cores, cores // max(options.jobs, 1)))
    try:
        plan = load_plan(options)
        base = options.base if options.base and pathlib.Path(options.base).exists() else None
        results = Results(options.out, base)
        harness = Harness(options, plan, results)
        if options.summarise:
            print(summary(plan, results))
            return 0
        if options.list:
            return show(plan, harness, options)
        if not shutil.which(options.filigree):
            raise UsageError(f"--filigree {options.filigree}: no such program")
        options.filigree = str(pathlib.Path(shutil.which(options.filigree)).absolute())
        if options.check:
            return check(plan, harness, options)
        harness.say(f"{options.jobs} runs side by side, {options.threads} threads each, {cores} processors")
        return harness.execute()
    except UsageError as error:
        print(f"run.py: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
