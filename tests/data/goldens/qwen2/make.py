"""Makes the golden of this folder: a tiny Qwen2 with random weights, in float64 with NumPy alone. Run it from anywhere.

The formulas are written down once more here, independently of Frit, and are first held to the goldens beside this folder (llama
and qwen3), which another implementation made. Files: config.json, model.safetensors, golden.safetensors as in docs/add-a-model.md.
"""

import json
import struct
from pathlib import Path

import numpy as np

HERE = Path(__file__).resolve().parent
TYPES = {"F32": np.float32, "I32": np.int32}


def read(path):
    data = path.read_bytes()
    (n,) = struct.unpack("<Q", data[:8])
    head = json.loads(data[8 : 8 + n])
    head.pop("__metadata__", None)
    part = lambda t: data[8 + n + t["data_offsets"][0] : 8 + n + t["data_offsets"][1]]
    return {k: np.frombuffer(part(t), TYPES[t["dtype"]]).reshape(t["shape"]) for k, t in head.items()}


def write(path, tensors, metadata):
    head, at = {"__metadata__": metadata}, 0
    for name, t in tensors.items():
        kind = next(k for k, v in TYPES.items() if v == t.dtype)
        head[name] = {"dtype": kind, "shape": list(t.shape), "data_offsets": [at, at + t.nbytes]}
        at += t.nbytes
    text = json.dumps(head).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + b"".join(t.tobytes() for t in tensors.values()))


def logits(c, w, ids):
    """Logits [T, vocab] of one sequence."""
    f = lambda name: w[name].astype(np.float64)
    heads, kv, d = c["num_attention_heads"], c["num_key_value_heads"], c.get("head_dim")
    d = d or c["hidden_size"] // heads
    norm = lambda x, name: x / np.sqrt((x * x).mean(-1, keepdims=True) + c["rms_norm_eps"]) * f(name + ".weight")

    def linear(x, name):
        y = x @ f(name + ".weight").T
        return y + f(name + ".bias") if name + ".bias" in w else y

    theta = c["rope_parameters"]["rope_theta"]
    angle = np.arange(len(ids))[:, None] * theta ** (-np.arange(0, d, 2) / d)
    sin, cos = np.sin(angle)[:, None], np.cos(angle)[:, None]

    def turn(x):
        a, b = x[..., : d // 2], x[..., d // 2 :]
        return np.concatenate([a * cos - b * sin, b * cos + a * sin], -1)

    x = f("model.embed_tokens.weight")[ids]
    future = np.triu(np.ones((len(ids), len(ids)), bool), 1)
    for i in range(c["num_hidden_layers"]):
        at = f"model.layers.{i}."
        y = norm(x, at + "input_layernorm")
        q, k, v = (linear(y, at + f"self_attn.{p}_proj").reshape(len(ids), -1, d) for p in "qkv")
        if at + "self_attn.q_norm.weight" in w:
            q, k = norm(q, at + "self_attn.q_norm"), norm(k, at + "self_attn.k_norm")
        q, k = turn(q), turn(k)
        out = np.empty_like(q)
        for h in range(heads):
            s = q[:, h] @ k[:, h * kv // heads].T / np.sqrt(d)
            s = np.exp(np.where(future, -np.inf, s) - s.max(-1, keepdims=True))
            out[:, h] = s / s.sum(-1, keepdims=True) @ v[:, h * kv // heads]
        x = x + linear(out.reshape(len(ids), -1), at + "self_attn.o_proj")
        y = norm(x, at + "post_attention_layernorm")
        g = linear(y, at + "mlp.gate_proj")
        x = x + linear(g / (1 + np.exp(-g)) * linear(y, at + "mlp.up_proj"), at + "mlp.down_proj")
    head = "model.embed_tokens.weight" if c["tie_word_embeddings"] else "lm_head.weight"
    return norm(x, "model.norm") @ f(head).T


def check(name):
    folder = HERE.parent / name
    c, w = json.loads((folder / "config.json").read_text()), read(folder / "model.safetensors")
    g = read(folder / "golden.safetensors")
    for ids, want in zip(g["input_ids"], g["logits"]):
        off = np.abs(logits(c, w, ids) - want).max() / want.std()
        assert off < 2e-5, (name, off)
        print(f"{name}: {off:.1e}")


def main():
    check("llama")
    check("qwen3")
    c = {
        "architectures": ["Qwen2ForCausalLM"],
        "bos_token_id": 1,
        "eos_token_id": 2,
        "hidden_act": "silu",
        "hidden_size": 48,
        "intermediate_size": 80,
        "max_position_embeddings": 256,
        "max_window_layers": 28,
        "model_type": "qwen2",
        "num_attention_heads": 6,
        "num_hidden_layers": 3,
        "num_key_value_heads": 2,
        "rms_norm_eps": 1e-6,
        "rope_parameters": {"rope_theta": 1000000.0, "rope_type": "default"},
        "sliding_window": None,
        "tie_word_embeddings": True,
        "use_sliding_window": False,
        "vocab_size": 192,
    }
    r = np.random.default_rng(20)
    hidden, inter, kv = c["hidden_size"], c["intermediate_size"], 2 * 8
    shapes = {"model.embed_tokens.weight": (c["vocab_size"], hidden), "model.norm.weight": (hidden,)}
    for i in range(c["num_hidden_layers"]):
        at = f"model.layers.{i}."
        for p, n in (("q", hidden), ("k", kv), ("v", kv)):
            shapes[at + f"self_attn.{p}_proj.weight"], shapes[at + f"self_attn.{p}_proj.bias"] = (n, hidden), (n,)
        shapes[at + "self_attn.o_proj.weight"] = (hidden, hidden)
        shapes[at + "mlp.gate_proj.weight"] = shapes[at + "mlp.up_proj.weight"] = (inter, hidden)
        shapes[at + "mlp.down_proj.weight"] = (hidden, inter)
        shapes[at + "input_layernorm.weight"] = shapes[at + "post_attention_layernorm.weight"] = (hidden,)
    w = {}
    for name, shape in sorted(shapes.items()):
        scale = 0.5 if len(shape) == 1 else 1.5 / np.sqrt(shape[1])
        w[name] = (r.standard_normal(shape) * scale + name.endswith("norm.weight")).astype(np.float32)
    ids = r.integers(0, c["vocab_size"], (2, 19)).astype(np.int32)
    out, nearest = list(ids[0][:11]), np.inf
    while len(out) < 35:
        row = logits(c, w, np.array(out))[-1]
        first, second = np.sort(row)[:-3:-1]
        nearest = min(nearest, (first - second) / row.std())
        out.append(int(row.argmax()))
    print(f"nearest tie: {nearest:.3f} standard deviations; {len(set(out[11:]))} different ids")
    assert nearest > 0.01
    golden = {
        "input_ids": ids,
        "logits": np.stack([logits(c, w, i) for i in ids]).astype(np.float32),
        "generated_ids": np.array([out], np.int32),
    }
    (HERE / "config.json").write_text(json.dumps(c, indent=2) + "\n")
    write(HERE / "model.safetensors", w, {"format": "pt"})
    note = "logits of the two rows; generated_ids = greedy continuation of the first 11 ids of row 0 by 24 tokens"
    write(HERE / "golden.safetensors", golden, {"reference": "NumPy, f64 (make.py)", "note": note})


main()
