"""Preference data in every form and as every kind of file, small and made up."""

import csv
import gzip
import io
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

Record = dict[str, Any]
_NOUNS = ("harbour", "violin", "glacier", "senate", "orchard", "engine", "novel", "market", "comet", "bridge")
_ACTS = ("measure", "explain", "compare", "repair", "describe", "paint", "govern", "observe", "finance", "translate")


def _pick(words: tuple[str, ...], line: tuple[int, int], step: int) -> str:
    return words[(line[0] + line[1] * step) % len(words)]


def question(number: int) -> str:
    """Return a question that is near to no other."""
    words = [
        f"{_ACTS[(number * 7 + step * 3) % 10]}{number}x{step} the {_NOUNS[(number + step) % 10]}" for step in range(5)
    ]
    return f"How would you {' and '.join(words)}?"


def good(number: int) -> str:
    """Return the better answer to a question."""
    return f"First {_NOUNS[number % 10]}{number}, then weigh it twice, and write down what changed in step {number}."


def bad(number: int) -> str:
    """Return the worse one."""
    return f"No idea about {_ACTS[number % 10]}{number}; ask somebody else."


def hh(number: int) -> Record:
    shown = f"\n\nHuman: {question(number)}\n\nAssistant: Which one?\n\nHuman: The {number}th.\n\nAssistant: "
    return {"chosen": shown + good(number), "rejected": shown + bad(number)}


def ultrafeedback(number: int) -> Record:
    def completion(text: str, rating: Any) -> Record:
        annotations = {aspect: {"Rating": str(rating), "Rationale": "so"} for aspect in ("helpfulness", "honesty")}
        annotations["truthfulness"] = {"Rating": "N/A", "Rationale": "so"}
        return {"model": "m", "response": text, "annotations": annotations, "overall_score": 10.0}

    texts = (bad(number), good(number), f"Maybe {number}, and maybe not.")
    return {
        "source": "evol",
        "instruction": question(number),
        "completions": [completion(text, rating) for text, rating in zip(texts, (1, 5, 3), strict=True)],
    }


def helpsteer2(number: int) -> Record:
    """Two rows that follow one another share a prompt."""
    attributes = {"correctness": 3, "coherence": 4, "complexity": 1, "verbosity": 2}
    answer, score = (good, 4) if number % 2 else (bad, 1)
    return {"prompt": question(number // 2), "response": answer(number // 2), "helpfulness": score, **attributes}


def nectar(number: int) -> Record:
    texts = (f"Perhaps {number}, perhaps {number + 1}.", good(number), bad(number))
    answers = [{"answer": text, "model": "m", "rank": rank} for text, rank in zip(texts, (2.0, 1.0, 3.0), strict=True)]
    return {"prompt": f"\n\nHuman: {question(number)}\n\nAssistant: ", "answers": answers, "turns": 1}


def pairs(number: int) -> Record:
    return {"prompt": question(number), "chosen": good(number), "rejected": bad(number)}


def conversations(number: int) -> Record:
    asked = {"role": "user", "content": question(number)}
    return {
        "chosen": [asked, {"role": "assistant", "content": good(number)}],
        "rejected": [asked, {"role": "assistant", "content": bad(number)}],
        "score_chosen": 8.5,
        "score_rejected": 3.0,
    }


def ab(number: int) -> Record:
    sides = (good(number), bad(number)) if number % 2 else (bad(number), good(number))
    return {"prompt": question(number), "response_a": sides[0], "response_b": sides[1], "winner": "BA"[number % 2]}


def prm800k(number: int) -> Record:
    def step(*rated: tuple[str, int], chosen: int | None) -> Record:
        completions = [{"text": text, "rating": rating, "flagged": None} for text, rating in rated]
        return {"completions": completions, "human_completion": None, "chosen_completion": chosen}

    steps = [
        step((f"Count to {number}.", 1), chosen=0),
        step((f"So it is {number}.", 1), (f"So it is minus {number}.", -1), chosen=None),
    ]
    problem = {"problem": question(number), "ground_truth_answer": str(number)}
    return {
        "question": problem,
        "label": {"steps": steps, "finish_reason": "found_error"},
        "timestamp": "2023-01-02T03:04:05",
    }


def stepwise(number: int) -> Record:
    steps = [f"Add {number}.", "Halve it.", f"The answer is {number}."]
    return {"prompt": question(number), "completions": steps, "labels": [True, True, bool(number % 2)]}


def records(number: int) -> Record:
    return {
        "id": f"r{number}",
        "task": "told",
        "prompt": [{"role": "user", "content": question(number)}],
        "candidates": [
            {"messages": [{"role": "assistant", "content": good(number)}], "score": 1.0, "rank": None},
            {"messages": [{"role": "assistant", "content": bad(number)}], "score": 0.25, "rank": None},
        ],
    }


MAKERS = {
    "hh": ("hh", hh),
    "ultrafeedback": ("ultrafeedback", ultrafeedback),
    "helpsteer2": ("helpsteer2", helpsteer2),
    "nectar": ("nectar", nectar),
    "pairs": ("pairs", pairs),
    "conversations": ("pairs", conversations),
    "ab": ("ab", ab),
    "prm800k": ("steps", prm800k),
    "stepwise": ("steps", stepwise),
    "records": ("records", records),
}
"""Name -> form, and the maker of a row by its number."""
KINDS = (".jsonl", ".json", ".csv", ".parquet")


def rows(name: str, count: int) -> list[Record]:
    """Return rows of a form; `helpsteer2` needs two for a record."""
    return [MAKERS[name][1](number) for number in range(count)]


def text_of(kind: str, data: list[Record]) -> bytes:
    """Return rows as the bytes of a text file, or of a Parquet file."""
    if kind == ".jsonl":
        return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in data).encode()
    if kind == ".json":
        return json.dumps(data, indent=1, ensure_ascii=False).encode()
    if kind == ".csv":
        out = io.StringIO(newline="")
        writer = csv.DictWriter(out, list(data[0]))
        writer.writeheader()
        for row in data:
            writer.writerow({key: json.dumps(v) if isinstance(v, list | dict) else v for key, v in row.items()})
        return out.getvalue().encode()
    sink = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(data), sink)
    return sink.getvalue()


def write(path: Path, content: bytes) -> Path:
    """Write bytes, packed as the name says."""
    if path.suffix == ".gz":
        content = gzip.compress(content, mtime=0)
    elif path.suffix == ".zst":
        content = pa.compress(content, codec="zstd", asbytes=True)
    path.write_bytes(content)
    return path
