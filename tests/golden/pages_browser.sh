#!/bin/sh
# Skips pages_browser.py where there is no python3 or no Chromium.
# Usage: pages_browser.sh SBPLAN ROOT
command -v python3 >/dev/null || { echo 'skipped: there is no python3' && exit 77; }
for name in chromium chromium-browser google-chrome; do
    command -v $name >/dev/null && exec python3 "$(dirname "$0")/pages_browser.py" "$1" "$2" $name
done
echo 'skipped: there is no Chromium'
exit 77
