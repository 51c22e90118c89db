#!/bin/sh
# chakra_traces.py by a Python that has the reader of Chakra: of BUILD/exports, which `./dev test
# exports` makes, else the system's.
# Usage: chakra_traces.sh BUILD SBPLAN ROOT
python=$1/exports/bin/python
[ -x "$python" ] || python=python3
command -v "$python" >/dev/null || { echo 'skipped: there is no python3' && exit 77; }
exec "$python" "$3/tests/golden/chakra_traces.py" "$2" "$3"
