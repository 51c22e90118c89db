#!/bin/sh
# `pip install .` into a fresh environment, and the package in it. Skipped where pip cannot have what
# it builds with.
# Usage: wheel.sh SOURCE_ROOT
scratch=$(mktemp -d) || exit 99
trap 'rm -rf "$scratch"' EXIT
unset SBPLAN SBPLAN_CONFIGS PYTHONPATH
python3 -m venv "$scratch/venv" || { echo 'no venv here' && exit 77; }
"$scratch/venv/bin/pip" download -q --no-deps -d "$scratch/got" meson-python >"$scratch/log" 2>&1 ||
    { tail -n 1 "$scratch/log" && exit 77; }
"$scratch/venv/bin/pip" install -q "$1" >"$scratch/log" 2>&1 || { cat "$scratch/log" && exit 1; }
cd "$scratch" && "$scratch/venv/bin/python" "$1/tests/wheel/test_package.py"
