for space in full autoddl; do sbplan search "$DATA/uvw.json" gcp-a100-2x4 --space $space --quick --runnable -o $space.json || exit; done
sbplan explain full.json | grep -E '^[uvw] |^  rests |^  input '
