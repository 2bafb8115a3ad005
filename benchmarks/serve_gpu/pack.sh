#!/usr/bin/env bash
# What mlcd needs on a machine that has PyTorch, transformers and Python 3.12 and no network: the folder py312 (20 MB;
# name it in `carry`). Leaves out what such a machine has. Run it where packages can be installed.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
python="${PYTHON:-.venv/bin/python}"
rm -rf py312
"$python" -m pip install --quiet --no-input --target py312 --python-version 3.12 --only-binary=:all: --no-deps \
  attrs cattrs click filelock h11 httptools jinja2 markdown-it-py markupsafe mdurl pygments pyyaml rich starlette \
  threadpoolctl typing-extensions uvicorn anyio idna sniffio
find py312 -name __pycache__ -o -name "*.dist-info" -prune -false | xargs -r rm -rf
git rev-parse --short HEAD > py312/COMMIT
du -sh py312
