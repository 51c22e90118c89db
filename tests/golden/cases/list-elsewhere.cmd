mkdir -p configs/models && cp "$DATA/truncated.json" configs/models/broken.json && SBPLAN_CONFIGS=configs sbplan list models | grep broken
