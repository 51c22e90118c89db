#!/bin/sh
# Skips pages.py where there is no python3.
# Usage: pages.sh SBPLAN ROOT
command -v python3 >/dev/null || { echo 'skipped: there is no python3' && exit 77; }
exec python3 "$(dirname "$0")/pages.py" "$@"
