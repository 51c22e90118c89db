#!/bin/sh
# Usage: exports_python.sh SBPLAN ROOT
command -v python3 >/dev/null || { echo 'skipped: there is no python3' && exit 77; }
exec python3 "$2/tests/golden/exports_python.py" "$1" "$2"
