sbplan search autoddl-attention flat-64 --memory-limit 8G
