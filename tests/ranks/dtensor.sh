#!/bin/sh
# The test of dtensor.py by a Python that has PyTorch: of BUILD/exports, which `./dev test exports`
# makes, else the system's.
# Usage: dtensor.sh BUILD SBPLAN ROOT
python=$1/exports/bin/python
[ -x "$python" ] || python=python3
command -v "$python" >/dev/null || { echo 'skipped: there is no python3' && exit 77; }
exec "$python" -W ignore "$3/tests/ranks/dtensor.py" "$2" "$3"
