mkdir -p configs/models && cp "$DATA/custom-layer.json" configs/models && SBPLAN_CONFIGS=configs sbplan list models | grep custom
