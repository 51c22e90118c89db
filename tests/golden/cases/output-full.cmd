sbplan list models >/dev/full
