#!/usr/bin/env bash
# Frit against onnxruntime on MiniLM in f32, in turns on this machine: `bench/encoder_peers.sh [PAIRS] [THREADS]`.
# Installs the peer at a pinned version into target/encoder-peers, builds embed_speed in release, fetches the model, waits for
# the machine to be idle, then hands over to encoder_peers.py.
set -euo pipefail
cd "$(dirname "$0")/.."
pairs=${1:-5}
threads=${2:-2}
peer=target/encoder-peers/bin/python
if ! "$peer" -c 'import onnxruntime; assert onnxruntime.__version__ == "1.32.0"' 2>/dev/null; then
  python3 -m venv target/encoder-peers
  "$peer" -m pip install --quiet onnxruntime==1.32.0 onnx==1.23.2 safetensors numpy
fi
cargo xtask fetch
cargo build --release --quiet --target-dir target -p frit-tests --bin embed_speed
for _ in $(seq 40); do # what was built above raised the load; it decays within minutes
  awk '{exit !($1 > 0.3)}' /proc/loadavg || break
  sleep 10
done
exec "$peer" bench/encoder_peers.py --frit target/release/embed_speed --model target/models/all-MiniLM-L6-v2 \
  --onnx target/encoder-peers/minilm.onnx --pairs "$pairs" --threads "$threads"
