#!/bin/bash
# One call on a bare machine with one GPU: bash benchmarks/train_gpu.sh SIZE SECONDS
#
# Before: python3 -m pip install --target py312 --python-version 3.12 --only-binary=:all: --no-deps --no-compile \
#             attrs cattrs click filelock jinja2 markdown-it-py markupsafe mdurl pygments pyyaml rich threadpoolctl \
#             typing-extensions
#         git rev-parse --short HEAD > py312/COMMIT          # py312 travels with the call (carry), 13 MiB
# numpy, scipy and PyTorch are the machine's own.
#
# Call 1: bash benchmarks/train_gpu.sh 1b 540       search, and most of the speeds
# Call 2: bash benchmarks/train_gpu.sh 1b 240       the rest of the speeds (at once: the machine keeps its files)
# Call 3: bash benchmarks/train_gpu.sh 300m 560     the second model; once more with 150 if it was cut off
# Then here: python benchmarks/record_train_gpu.py --record 1b 300m     (the folders that came back)
#
# State is kept in /tmp/train-gpu and copied to $OUT every 3 s, so that a call that is cut off loses one setting at most.
# On a fresh machine, name the folder that came back in `carry` as train-gpu: speeds are continued from there.
set -u
size=$1 seconds=$2 here=$(pwd) state=/tmp/train-gpu/$1 out=${OUT:-/tmp/train-gpu-out}/$1
export PYTHONPATH=$here/py312:$here/src:$here/benchmarks PYTHONUNBUFFERED=1 PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True
COMMIT=$(cat "$here/py312/COMMIT" 2>/dev/null); export COMMIT
mkdir -p "$state" "$out"
[ -d "$here/train-gpu/$size" ] && [ ! -e "$state/speeds.json" ] && cp -r "$here/train-gpu/$size/." "$state/"
copy() { cp "$state"/{report,speeds,result,machine,memory,unfinished}.json "$state"/{progress,measuring}.txt "$out/" 2>/dev/null; }  # 8 files
nvidia-smi --query-gpu=name,memory.total,driver_version --format=csv,noheader
python3 -c "import numpy, scipy, torch, mlcd; print(numpy.__version__, scipy.__version__, torch.__version__)" || exit 3
( while sleep 3; do copy; done ) &
copier=$!
timeout --signal=TERM --kill-after=15 "$seconds" \
  python3 benchmarks/record_train_gpu.py --size "$size" --out "$state" --most-seconds $((seconds - 25))
code=$?
kill $copier
copy
tail -n 3 "$state"/progress.txt "$state"/measuring.txt
exit $code
