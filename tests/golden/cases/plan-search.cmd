# What a plan says of its search is checked, member by member, though nothing follows from it.
sbplan search tiny-mlp laptop-4 --top 2 --memory-limit 1T -o plan.json >/dev/null || exit
try() { # KEY VALUE
    sed "/\"search\"/,\$s/\"$1\":.*[^,]\(,*\)\$/\"$1\": $2\1/" plan-2.json >tampered.json
    ! cmp -s plan-2.json tampered.json && sbplan explain tampered.json >/dev/null
}
try space 7
try space '"ful"'
try status '"best"'
try objective true
try objective_s -1
try lower_bound_s '"none"'
try lower_bound_s -1
try algorithm '"exat"'
try seed 0.5
try seed -1
try evaluations -1
try evaluations '"many"'
try memory_limit_bytes 0
try rank '[2]'
try command '{}'
try command '"x", "comand": "y"'
try command '"x", "stopped": 1'
try command '"x", "max_batch_split": 0'
sed 's/"made_by":.*/"made_by": 1,/' plan.json >tampered.json
sbplan explain tampered.json
sed '/"search":/,/}/c"search": 5,' plan.json >tampered.json
sbplan explain tampered.json
