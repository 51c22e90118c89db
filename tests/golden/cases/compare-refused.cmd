sbplan compare gpt2-medium gcp-a100-2x16
