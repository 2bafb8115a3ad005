#!/usr/bin/env bash
# What mlcd and `transformers serve` need on a machine that has PyTorch, transformers, NumPy, SciPy and Python 3.12, and no
# network: the folder py312. Run it where packages can be installed, and carry the folder along.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
python="${PYTHON:-.venv/bin/python}"
rm -rf py312
"$python" -m pip install --quiet --no-input --target py312 --python-version 3.12 --only-binary=:all: \
  cattrs click filelock jinja2 pyyaml rich threadpoolctl httptools starlette uvicorn fastapi openai
rm -rf py312/numpy* py312/scipy* py312/bin
find py312 -name __pycache__ -type d -prune -exec rm -rf {} +
git rev-parse --short HEAD > py312/COMMIT
du -sh py312
