mkdir -p configs/models && for f in "$DATA"/hf-*.json; do
  sbplan import hf "$f" --global-batch 8 --sequence 64 -o configs/models/"$(basename "$f")" >/dev/null 2>&1 ||
    sbplan import hf "$f" --global-batch 8 -o configs/models/"$(basename "$f")" >/dev/null
done; SBPLAN_CONFIGS=configs sbplan list models | grep hf-
