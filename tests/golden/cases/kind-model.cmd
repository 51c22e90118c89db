cp "$SBPLAN_CONFIGS/models/tiny-mlp.json" "$SBPLAN_CONFIGS/clusters/laptop-4.json" .
sbplan explain tiny-mlp.json 2>&1
sbplan run laptop-4.json 2>&1
sbplan price tiny-mlp.json laptop-4.json --strategy tiny-mlp.json
