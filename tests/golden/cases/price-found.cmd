# what is found and written costs the same again, to the bit: norms keep their ZeRO levels, too
cost() {
grep -E '"(step_s|device_bytes)":' | head -2
}
for search in "gpt2-small laptop-4 --set sequence=128" "tiny-gpt laptop-4"; do
sbplan search $search -o plan.json --json >output.json
cost <output.json >found.txt
for written in plan.json output.json; do
sbplan price $search --strategy $written --json | cost | cmp - found.txt && echo "$written: the same"
done
done
