# a whole search with the memory that was named finds a plan that fits it
bytes_of() {
grep -o "\"$1\":.*[0-9]" | head -1 | grep -o '[0-9]*$'
}
for search in "vgg-13 gcp-a100-2x4" "gpt3-175b dgx-a100-8x8 --space summa" "bert-large v100-roce-4x8 --space summa" "llama-2-7b dgx-a100-8x8 --space autoddl"; do
least=$(sbplan search $search --memory-limit 50M --json | bytes_of needed_bytes)
used=$(sbplan search $search --memory-limit "$least" --json | bytes_of device_bytes)
[ "${used:-0}" -gt 0 ] && [ "$used" -le "$least" ] && echo "$search: it fits"
done
