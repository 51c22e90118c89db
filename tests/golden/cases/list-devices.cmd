sbplan list devices; sbplan list devices --json | grep -A2 l40s
