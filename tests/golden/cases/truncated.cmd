sbplan search "$DATA/truncated.json" laptop-4
