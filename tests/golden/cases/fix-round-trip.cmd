# The roles of a found plan, given with --fix, are legal in its own space and cost the same.
spaces=$(sbplan search --help | awk '/^Spaces:/ { on = 1; next } /^$/ { on = 0 } on && /^  [a-z]/ { print $1 }')
round_trip() { # MODEL CLUSTER SPACE
    sbplan search "$1" "$2" --space "$3" -o plan.json >/dev/null || return
    fixes=$(sed '1,/"layers"/d' plan.json | tr -d '\t"' | awk '
        /^name:/ { name = substr($0, 6, length($0) - 6) }
        /^roles:/ { on = name !~ /block[1-9]/; roles = "" }
        /^axes:/ { if (on && roles != "") print "--fix " name "=" roles; on = 0 }
        on && /:\[/ { sub(/\],?$/, ""); gsub(/, */, "/"); sub(/:\[/, ":"); roles = roles (roles == "" ? "" : ",") $0 }')
    # shellcheck disable=SC2086
    sbplan search "$1" "$2" --space "$3" $fixes -o again.json >out.txt || echo "$fixes"
    [ "$(grep objective_s plan.json)" = "$(grep objective_s again.json)" ] || echo "another cost: $fixes"
    echo "$1 $2 $3: $(echo "$fixes" | wc -l) layers"
}
for space in $spaces; do
    [ "$space" = megatron-node ] || round_trip tiny-mlp laptop-4 "$space"
    [ "$space" = megatron-node ] || round_trip tiny-gpt laptop-4 "$space"
done
for space in full gshard megatron megatron-node megatron-3d; do
    round_trip tiny-gpt gcp-a100-2x4 "$space"
done
# Last resorts, too, which nothing but a plan shows.
sbplan search "$DATA/indivisible.json" laptop-4 --space gshard --fix fc1=replicate:4 | grep step
sbplan search tiny-gpt gcp-a100-2x4 --space summa --fix block0.projection=batch:2/2,grid_column:1/2 | grep step
sbplan search wide-deep laptop-4 --space summa --fix layer0.dense=batch:4 | grep step
