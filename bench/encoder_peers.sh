#!/usr/bin/env bash
# Frit against onnxruntime on MiniLM in f32, in turns on this machine: `bench/encoder_peers.sh [PAIRS] [THREADS]`.
# Installs the peer at a pinned version into target/encoder-peers, builds embed_speed in release, fetches the model, then hands over to
# encoder_peers.py.
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
cargo build --release --quiet -p frit-tests --bin embed_speed
exec "$peer" bench/encoder_peers.py --frit target/release/embed_speed --model target/models/all-MiniLM-L6-v2 \
  --onnx target/encoder-peers/minilm.onnx --pairs "$pairs" --threads "$threads"
