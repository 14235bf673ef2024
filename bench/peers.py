"""Frit and llama.cpp in turns (A B A B …) on one GGUF model: median ratio and spread of prefill and decode rates.

Refuses to start on a busy machine (1-minute load above 0.3) and refuses to report a ratio whose spread exceeds 15 %.
"""
import argparse, json, os, statistics, subprocess, sys, time

PEER = r"""
import sys, time, json, llama_cpp
model, threads, prompt, tokens, repeats = sys.argv[1], *map(int, sys.argv[2:])
m = llama_cpp.Llama(model, n_ctx=prompt + tokens + 16, n_threads=threads, n_threads_batch=threads, n_batch=512, verbose=False)
ids = [2 + (i * 7919) % 2000 for i in range(prompt)]
m.eval(ids[:32]); m.reset()
prefill, decode = [], []
for _ in range(repeats):
    m.reset(); t = time.perf_counter(); m.eval(ids); prefill.append(prompt / (time.perf_counter() - t))
    t = time.perf_counter()
    for i in range(tokens): m.eval([100 + i])
    decode.append(tokens / (time.perf_counter() - t))
print(json.dumps({"prefill": max(prefill), "decode": max(decode)}))
"""

def frit(a):
    out = subprocess.run([a.frit, "bench", a.model, "--json", "--threads", str(a.threads), "--prompt", str(a.prompt),
                          "--tokens", str(a.tokens), "--runs", str(a.repeats)], check=True, capture_output=True, text=True).stdout
    j = json.loads(out)
    return {"prefill": j["prefill_tokens_per_second"], "decode": j["decode_tokens_per_second"]}

def peer(a):
    args = [sys.executable, "-c", PEER, a.model, str(a.threads), str(a.prompt), str(a.tokens), str(a.repeats)]
    return json.loads(subprocess.run(args, check=True, capture_output=True, text=True).stdout.splitlines()[-1])

def cpu():
    for line in open("/proc/cpuinfo"):
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return "unknown"

def main():
    p = argparse.ArgumentParser()
    p.add_argument("--frit", required=True); p.add_argument("--model", required=True)
    p.add_argument("--runs", type=int, default=5); p.add_argument("--threads", type=int, default=2)
    p.add_argument("--prompt", type=int, default=512); p.add_argument("--tokens", type=int, default=128)
    p.add_argument("--turns", type=int, default=6, help="A B turns of one run; each side counts its best, so that what else "
                   "the host does in one turn does not count")
    p.add_argument("--repeats", type=int, default=2, help="repeats inside a turn")
    a = p.parse_args()
    if a.runs < 5:
        sys.exit("at least 5 runs")
    load = os.getloadavg()[0]
    if load > 0.3:
        sys.exit(f"the machine is busy (load {load:.2f}); no report above 0.3")
    rows = []
    for i in range(a.runs):
        turns = [(frit(a), peer(a)) for _ in range(a.turns)]
        rows.append(tuple({k: max(t[side][k] for t in turns) for k in ("prefill", "decode")} for side in (0, 1)))
        print(f"run {i + 1}: frit {rows[-1][0]} llama.cpp {rows[-1][1]}", file=sys.stderr)
    print(f"CPU {cpu()}, {os.cpu_count()} processors, {a.threads} threads, load before {load:.2f}, {a.runs} runs of {a.turns} turns")
    bad = False
    for what in ("prefill", "decode"):
        ratios = [f[what] / l[what] for f, l in rows]
        med = statistics.median(ratios)
        spread = (max(ratios) - min(ratios)) / med
        if spread > 0.15:
            bad = True
            print(f"{what}: spread {spread:.0%} is above 15 %, no figure")
            continue
        f = statistics.median(r[0][what] for r in rows); l = statistics.median(r[1][what] for r in rows)
        print(f"{what}: ratio {med:.2f} (spread {spread:.0%}); frit {f:.0f} tok/s, llama.cpp {l:.0f} tok/s")
    sys.exit(1 if bad else 0)

main()
