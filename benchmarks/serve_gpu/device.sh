# Variables of a bare machine with a GPU: what was carried comes first.
here=$(pwd)
export PYTHONPATH=$here/py312:$here/src:$here/benchmarks PYTHONUNBUFFERED=1
COMMIT=$(cat "$here/COMMIT"); export COMMIT
