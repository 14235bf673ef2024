#!/usr/bin/env bash
# Frit against llama.cpp on one GGUF model (SmolLM2 unless another file is named), in turns on this machine:
# `bench/peers.sh [RUNS] [THREADS] [MODEL.gguf]`.
# Installs the peer at a pinned version into target/peers (needs clang-19 and libomp for it: Debian packages clang-19 and
# libomp-19-dev), builds frit in release, fetches the model, waits for the machine to be idle, then hands over to peers.py.
set -euo pipefail
cd "$(dirname "$0")/.."
runs=${1:-5}
threads=${2:-2}
model=${3:-target/models/SmolLM2-135M-Instruct.Q4_1.gguf}
peer=target/peers/bin/python
if ! "$peer" -c 'import llama_cpp; assert llama_cpp.__version__ == "0.3.36"' 2>/dev/null; then
  command -v clang-19 >/dev/null || { echo "clang-19 is missing (Debian: clang-19 libomp-19-dev)" >&2; exit 1; }
  python3 -m venv target/peers
  CC=clang-19 CXX=clang++-19 "$peer" -m pip install --quiet llama-cpp-python==0.3.36
fi
cargo xtask fetch
cargo build --release --quiet --target-dir target -p frit-cli
for _ in $(seq 40); do # what was built above raised the load; it decays within minutes
  awk '{exit !($1 > 0.3)}' /proc/loadavg || break
  sleep 10
done
exec "$peer" bench/peers.py --frit target/release/frit --model "$model" --runs "$runs" --threads "$threads"
