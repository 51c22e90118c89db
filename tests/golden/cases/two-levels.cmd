sbplan search gpt2-medium gcp-a100-2x16 --space autoddl
