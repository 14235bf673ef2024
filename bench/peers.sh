#!/usr/bin/env bash
# Frit against llama.cpp on SmolLM2, in turns on this machine: `bench/peers.sh [RUNS] [THREADS]`.
# Installs the peer at a pinned version into target/peers (needs clang-19 and libomp for it: Debian packages clang-19 and
# libomp-19-dev), builds frit in release, fetches the model, then hands over to peers.py.
set -euo pipefail
cd "$(dirname "$0")/.."
runs=${1:-5}
threads=${2:-2}
peer=target/peers/bin/python
if ! "$peer" -c 'import llama_cpp; assert llama_cpp.__version__ == "0.3.36"' 2>/dev/null; then
  command -v clang-19 >/dev/null || { echo "clang-19 is missing (Debian: clang-19 libomp-19-dev)" >&2; exit 1; }
  python3 -m venv target/peers
  CC=clang-19 CXX=clang++-19 "$peer" -m pip install --quiet llama-cpp-python==0.3.36
fi
cargo xtask fetch
cargo build --release --quiet -p frit-cli
exec "$peer" bench/peers.py --frit target/release/frit --model target/models/SmolLM2-135M-Instruct.Q4_1.gguf \
  --runs "$runs" --threads "$threads"
