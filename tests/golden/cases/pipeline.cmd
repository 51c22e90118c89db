sbplan search gpt2-medium gcp-a100-2x16 --set pipeline=2 --set micro_batch=1 -o plan.json && sbplan explain plan.json | sed -n "/^stage/,/^$/p;/^embedding/,/^$/p"
