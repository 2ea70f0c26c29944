#!/usr/bin/env python3
"""Compares the scores of `filigree eval` with lm-evaluation-harness' own on the same tiny model and questions.

    check.py FILIGREE DATA WORK [--limit N]

DATA holds blimp.tar.xz, lambada.tar.xz, hellaswag_val_full.txt.bz2, choice-tasks.tar.xz, and tokenizer/gpt2 beside it or
inside. WORK is made. Needs lm-eval, transformers, torch and datasets.
"""
import argparse
import bz2
import io
import json
import math
import os
import pathlib
import shutil
import subprocess
import sys
import tarfile

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["HF_DATASETS_OFFLINE"] = "1"

BLIMP_SETS = ["anaphor_gender_agreement", "principle_A_case_1", "wh_island"]


def rows_of_archive(path, ending):
    with tarfile.open(path) as archive:
        for member in archive:
            if member.name.endswith(ending):
                text = io.TextIOWrapper(archive.extractfile(member), "utf-8")
                return [json.loads(line) for line in text if line.strip()]
    raise SystemExit(f"{path}: no {ending}")


def labelled(choices):
    return {"text": choices, "label": [chr(ord("A") + i) for i in range(len(choices))]}


def published(data, limit):
    """Rows by task in the form in which each task is published."""
    choices = lambda name: rows_of_archive(data / "choice-tasks.tar.xz", f"/{name}.jsonl")[:limit]
    question = lambda row: row["query"].removeprefix("Question: ").rstrip("\n")
    rows = {"lambada": rows_of_archive(data / "lambada.tar.xz", ".jsonl")[:limit]}
    lines = bz2.open(data / "hellaswag_val_full.txt.bz2", "rt", encoding="utf-8").read().split("\n")
    rows["hellaswag"] = []
    for first in range(0, min(6 * limit, len(lines) - 5), 6):
        activity, _, context = lines[first].partition(": ")
        head, dot, tail = context.rpartition(". ")
        # Marks that the published data has, and an NBSP, so that they are cleaned on both sides.
        rows["hellaswag"].append({"activity_label": activity, "ctx_a": "[header] " + head.replace(",", " [title]") + dot,
                                  "ctx_b": tail.upper() + "\u00a0", "endings": ["[step]  " + e for e in lines[first + 2:first + 6]],
                                  "label": lines[first + 1]})
    rows["piqa"] = [{"goal": question(row), "sol1": row["choices"][0], "sol2": row["choices"][1], "label": row["gold"]}
                    for row in choices("piqa")]
    for task in ("arc_easy", "arc_challenge"):
        rows[task] = [{"question": question(row), "choices": labelled(row["choices"]),
                       "answerKey": chr(ord("A") + row["gold"])} for row in choices(task)]
    rows["openbookqa"] = [{"question_stem": row["query"], "choices": labelled(row["choices"]),
                           "answerKey": chr(ord("A") + row["gold"])} for row in choices("openbook_qa")]
    rows["winogrande"] = []
    for row in choices("winogrande"):
        before, after = row["context_options"]
        common = os.path.commonprefix([before, after])
        common = common[:common.rfind(" ") + 1]
        rows["winogrande"].append({"sentence": common + "_ " + row["continuation"], "option1": before[len(common):],
                                   "option2": after[len(common):], "answer": str(row["gold"] + 1)})
    questions = [row for row in choices("arc_easy") if len(row["choices"]) == 4]
    subjects = ["abstract_algebra", "anatomy", "virology", "world_religions"]
    rows["mmlu"] = [{"question": " " + question(row) + "\n", "subject": subjects[i % 7 % 4], "choices": row["choices"],
                     "answer": row["gold"]} for i, row in enumerate(questions)]
    rows["mathqa"] = [{"Problem": question(row), "options": " , ".join(
        f"{chr(ord('a') + i)} ) {choice}" for i, choice in enumerate(row["choices"] + ["none, really"])),
        "correct": chr(ord("a") + row["gold"])} for row in questions]
    rows["race"] = []
    for i in range(0, len(questions) - 3, 3):
        problems = [{"question": question(row), "answer": chr(ord("A") + row["gold"]), "options": row["choices"]}
                    for row in questions[i:i + 3]]
        problems[1]["question"] = problems[1]["question"].rstrip("?.") + "  _  ."
        rows["race"].append({"article": rows["lambada"][i % len(rows["lambada"])]["text"], "problems": repr(problems)})
    return rows


def tiny_model(folder, tokenizer_folder):
    import torch
    from transformers import GPT2Config, GPT2LMHeadModel, GPT2TokenizerFast

    torch.manual_seed(5)
    config = GPT2Config(n_layer=2, n_embd=64, n_head=4, n_positions=256, vocab_size=50257)
    model = GPT2LMHeadModel(config).eval()
    with torch.no_grad():  # far from uniform, so that choices differ
        for name, parameter in model.named_parameters():
            if parameter.ndim == 2:
                parameter.mul_(5.0 if "wte" in name else 3.0)
    model.save_pretrained(folder)
    for name in ("vocab.json", "merges.txt"):
        shutil.copy(tokenizer_folder / name, folder / name)
    tokenizer = GPT2TokenizerFast.from_pretrained(folder)
    for name in ("vocab.json", "merges.txt"):
        (folder / name).unlink()
    tokenizer.save_pretrained(folder)  # tokenizer.json
    if len(tokenizer) != 50257:
        sys.exit(f"{tokenizer_folder}: transformers reads {len(tokenizer)} tokens from it")
    return model, tokenizer


def harness_scores(model, tokenizer, files, work):
    from lm_eval import evaluator
    from lm_eval.models.huggingface import HFLM
    from lm_eval.tasks import TaskManager

    lm = HFLM(pretrained=model, tokenizer=tokenizer, batch_size=8, device="cpu")
    manager = TaskManager()
    tasks, groups = [], {}
    for name, path in files.items():
        base = {"lambada": "lambada_openai"}.get(name, name)
        if name in ("blimp", "mmlu"):
            for part in sorted(path.glob("*.jsonl")) if path.is_dir() else split_by_subject(path, work):
                tasks.append(local(manager, f"{name}_{part.stem}", part, work))
                groups.setdefault(name, []).append(f"{name}_{part.stem}")
        else:
            tasks.append(local(manager, base, path, work))
    results = evaluator.simple_evaluate(model=lm, tasks=tasks, task_manager=manager, bootstrap_iters=2)["results"]
    scores = {("lambada" if name == "lambada_openai" else name): result for name, result in results.items()}
    return scores, groups


def local(manager, task, path, work):
    """A configuration of the harness's task with another source of its rows; no examples before the question."""
    import yaml

    configuration = {"include": str(manager.task_index[task].yaml_path), "task": task, "dataset_path": "json",
                     "dataset_name": None, "training_split": None, "fewshot_split": None, "validation_split": None,
                     "test_split": "train", "dataset_kwargs": {"data_files": str(path)}}
    file = work / f"{task}.yaml"
    file.write_text(yaml.safe_dump(configuration))
    return str(file)


def split_by_subject(path, work):
    parts = {}
    for line in open(path, encoding="utf-8"):
        parts.setdefault(json.loads(line)["subject"], []).append(line)
    folder = work / "subjects"
    folder.mkdir(exist_ok=True)
    for subject, lines in parts.items():
        (folder / f"{subject}.jsonl").write_text("".join(lines), encoding="utf-8")
    return sorted(folder.glob("*.jsonl"))


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("filigree", type=pathlib.Path)
    parser.add_argument("data", type=pathlib.Path)
    parser.add_argument("work", type=pathlib.Path)
    parser.add_argument("--limit", type=int, default=200)
    options = parser.parse_args()
    work = options.work.resolve()
    (work / "data" / "blimp").mkdir(parents=True)
    tokenizer_folder = next(folder for folder in (options.data / "tokenizer/gpt2", options.data.parent / "tokenizer/gpt2")
                            if folder.is_dir())

    files = {}
    for name, rows in published(options.data, options.limit).items():
        files[name] = work / "data" / f"{name}.jsonl"
        files[name].write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    for name in BLIMP_SETS:
        rows = rows_of_archive(options.data / "blimp.tar.xz", f"/{name}.jsonl")[:options.limit]
        (work / "data" / "blimp" / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    files["blimp"] = work / "data" / "blimp"

    model, tokenizer = tiny_model(work / "model", tokenizer_folder)
    subprocess.run([options.filigree.resolve(), "import", work / "model", "--out", work / "checkpoint"], check=True)
    printed = subprocess.run([options.filigree.resolve(), "eval", work / "checkpoint", "--task", ",".join(files), "--task-data",
                              work / "data", "--batch", "6", "--json"], check=True, capture_output=True, text=True).stdout
    ours = json.loads(printed)["results"]
    theirs, groups = harness_scores(model, tokenizer, files, work)

    from lm_eval.api.metrics import pooled_sample_stderr, unweighted_mean_stderr
    for name, parts in groups.items():
        errors, sizes = [theirs[part]["acc_stderr,none"] for part in parts], [ours[part]["sample_len"] for part in parts]
        means = [theirs[part]["acc,none"] for part in parts]
        weighted = name == "mmlu"
        theirs[name] = {
            "acc,none": sum(m * s for m, s in zip(means, sizes)) / sum(sizes) if weighted else sum(means) / len(means),
            "acc_stderr,none": pooled_sample_stderr(errors, sizes) if weighted else unweighted_mean_stderr(errors)}

    wrong = 0
    for name in sorted(theirs):
        for metric, value in theirs[name].items():
            # The harness draws samples for the perplexity's standard error.
            if not isinstance(value, float) or metric not in ours[name] or metric == "perplexity_stderr,none":
                continue
            mine = ours[name][metric]
            same = math.isclose(mine, value, rel_tol=2e-5 if metric.startswith("perplexity") else 1e-12)
            wrong += not same
            print(f"{name:40} {metric:20} {mine:<24} {value:<24} {'' if same else 'DIFFERENT'}")
    print("all equal" if wrong == 0 else f"{wrong} differ")
    sys.exit(wrong > 0)


if __name__ == "__main__":
    main()
