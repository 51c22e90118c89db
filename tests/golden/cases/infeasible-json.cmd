sbplan search autoddl-attention flat-64 --memory-limit 20M --json >out.json
status=$?
sed -E 's/("(needed_bytes|lower_bound_s)":[[:space:]]*)[-.e0-9]+/\1.../' out.json
exit $status
