#!/usr/bin/env bash
# One part of the proof on a bare machine with a GPU, in one command; results under $OUT, a table at the end.
#   bash benchmarks/serve_gpu/device.sh check | llm llama-100m | llm llama-1b | five vit-large convnext-base regnet-y
# From the repository's root. Before, where packages can be installed: benchmarks/serve_gpu/pack.sh makes py312 and COMMIT.
set -euo pipefail
here=$(pwd)
export PYTHONPATH=$here/py312:$here/src:$here/benchmarks PYTHONUNBUFFERED=1
COMMIT=$(cat "$here/py312/COMMIT"); export COMMIT
what=$1; shift
python3 -m serve_gpu.run "$what" "${OUT:?where results go}" "$@"
