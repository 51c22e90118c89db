#!/bin/sh
# Skips advise.py where there is no python3.
# Usage: advise.sh SBPLAN ROOT
command -v python3 >/dev/null || { echo 'skipped: there is no python3' && exit 77; }
exec python3 "$(dirname "$0")/advise.py" "$@"
