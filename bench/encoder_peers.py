"""Frit and onnxruntime in turns (A B A B …) on MiniLM in f32: median ratio and spread for batches of equal length.

Needs numpy, onnx, onnxruntime and safetensors. The peer runs the same weights as an ONNX graph that this script writes: no mask and no
pooling, so it has a little less to do. Refuses to start on a busy machine (1-minute load above 0.3, unless --busy) and refuses to
report a ratio whose spread exceeds 15 %.
"""
import argparse, json, os, statistics, subprocess, sys, time

SHAPES = [(1, 32), (1, 128), (32, 128), (8, 512)]

def graph(folder, path):
    """Writes the encoder of a Hugging Face folder as ONNX: ids i64 [B, T] to hidden states f32 [B, T, hidden]."""
    import numpy as np, onnx
    from onnx import TensorProto as P, helper as h, numpy_helper
    from safetensors.numpy import load_file
    c = json.load(open(os.path.join(folder, "config.json")))
    w = load_file(os.path.join(folder, "model.safetensors"))
    w = {k.removeprefix("bert."): v for k, v in w.items()}
    nodes, init = [], {}
    def const(name, value):
        init[name] = np.asarray(value)
        return name
    def weight(name, transposed=False):
        return const(name, np.ascontiguousarray(w[name].T) if transposed else w[name])
    def op(kind, *inputs, **attrs):
        out = f"v{len(nodes)}"
        nodes.append(h.make_node(kind, list(inputs), [out], **attrs))
        return out
    def linear(x, name):
        return op("Add", op("MatMul", x, weight(name + ".weight", True)), weight(name + ".bias"))
    def norm(x, name):
        return op("LayerNormalization", x, weight(name + ".weight"), weight(name + ".bias"), axis=-1, epsilon=c["layer_norm_eps"])
    heads, width = c["num_attention_heads"], c["hidden_size"]
    const("split", np.array([0, 0, heads, width // heads])); const("merge", np.array([0, 0, width]))
    const("zero", np.array([0])); const("one", np.array([1])); const("axis", np.array([0]))
    const("scale", np.float32((width // heads) ** -0.5))
    const("half", np.float32(0.5)); const("root2", np.float32(2 ** 0.5)); const("unit", np.float32(1))
    tokens = op("Slice", op("Shape", "ids"), "one", const("two", np.array([2])))
    x = op("Gather", weight("embeddings.word_embeddings.weight"), "ids")
    x = op("Add", x, op("Slice", weight("embeddings.position_embeddings.weight"), "zero", tokens, "axis"))
    x = op("Add", x, const("type0", w["embeddings.token_type_embeddings.weight"][0]))
    x = norm(x, "embeddings.LayerNorm")
    for i in range(c["num_hidden_layers"]):
        p = f"encoder.layer.{i}."
        def project(name, perm):
            return op("Transpose", op("Reshape", linear(x, p + "attention.self." + name), "split"), perm=perm)
        q, k, v = project("query", [0, 2, 1, 3]), project("key", [0, 2, 3, 1]), project("value", [0, 2, 1, 3])
        s = op("Softmax", op("Mul", op("MatMul", q, k), "scale"), axis=-1)
        y = op("Reshape", op("Transpose", op("MatMul", s, v), perm=[0, 2, 1, 3]), "merge")
        x = norm(op("Add", linear(y, p + "attention.output.dense"), x), p + "attention.output.LayerNorm")
        y = linear(x, p + "intermediate.dense")
        y = op("Mul", op("Mul", y, op("Add", op("Erf", op("Div", y, "root2")), "unit")), "half")
        x = norm(op("Add", linear(y, p + "output.dense"), x), p + "output.LayerNorm")
    nodes[-1].output[0] = "hidden"
    g = h.make_graph(nodes, "encoder", [h.make_tensor_value_info("ids", P.INT64, ["B", "T"])],
                     [h.make_tensor_value_info("hidden", P.FLOAT, ["B", "T", width])],
                     [numpy_helper.from_array(v, n) for n, v in init.items()])
    onnx.save(h.make_model(g, opset_imports=[h.make_opsetid("", 17)], ir_version=8), path)

def peer(path, b, t, runs, threads):
    import numpy as np, onnxruntime as ort
    o = ort.SessionOptions()
    o.intra_op_num_threads = threads; o.inter_op_num_threads = 1
    s = ort.InferenceSession(path, o, providers=["CPUExecutionProvider"])
    ids = 1000 + (np.arange(b)[:, None] * 7919 + np.arange(t)[None] * 104729) % 19000
    times = []
    for i in range(runs + 2):
        start = time.perf_counter(); hidden = s.run(None, {"ids": ids})[0]; times.append((time.perf_counter() - start) * 1e3)
    mean = hidden.mean(axis=1)
    return statistics.median(times[2:]), mean / np.linalg.norm(mean, axis=1, keepdims=True)

def frit(program, b, t, runs, threads):
    out = subprocess.run([program, str(b), str(t), str(runs), "512", str(threads)], check=True, capture_output=True, text=True).stdout
    return json.loads(out)["median_ms"]

def cpu():
    for line in open("/proc/cpuinfo"):
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return "unknown"

def main():
    p = argparse.ArgumentParser()
    p.add_argument("--frit", required=True, help="the program embed_speed"); p.add_argument("--model", required=True, help="MiniLM's folder")
    p.add_argument("--onnx", required=True, help="where the peer's graph is kept")
    p.add_argument("--pairs", type=int, default=5); p.add_argument("--runs", type=int, default=9); p.add_argument("--threads", type=int, default=2)
    p.add_argument("--busy", action="store_true", help="measure on a busy machine; the figures count for nothing but orientation")
    a = p.parse_args()
    if a.pairs < 5:
        sys.exit("at least 5 pairs")
    load = os.getloadavg()[0]
    if load > 0.3 and not a.busy:
        sys.exit(f"the machine is busy (load {load:.2f}); no report above 0.3")
    if not os.path.exists(a.onnx):
        graph(a.model, a.onnx)
    print(f"CPU {cpu()}, {os.cpu_count()} processors, {a.threads} threads, load before {load:.2f}, {a.pairs} pairs")
    bad = False
    for b, t in SHAPES:
        rows = [(frit(a.frit, b, t, a.runs, a.threads), peer(a.onnx, b, t, a.runs, a.threads)[0]) for _ in range(a.pairs)]
        ratios = [theirs / ours for ours, theirs in rows]
        med = statistics.median(ratios)
        spread = (max(ratios) - min(ratios)) / med
        f = statistics.median(r[0] for r in rows); o = statistics.median(r[1] for r in rows)
        if spread > 0.15:
            bad = True
            print(f"{b}x{t}: spread {spread:.0%} is above 15 %, no figure" + (f" (busy: {f:.1f} against {o:.1f} ms)" if a.busy else ""))
            continue
        print(f"{b}x{t}: ratio {med:.2f} (spread {spread:.0%}); frit {f:.1f} ms, onnxruntime {o:.1f} ms")
    sys.exit(1 if bad else 0)

main()
