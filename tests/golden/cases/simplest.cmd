# The uniform layout that the interval cannot tell from the plan, and its price by itself.
sbplan search llama-3.1-8b dgx-h100-8x8 --set global_batch=256 | grep -E '^(step|interval|simplest)'
sbplan price llama-3.1-8b dgx-h100-8x8 --set global_batch=256 --zero 1 --micro-batch 1 | grep -E '^(layout|step)'
sbplan search llama-3.1-8b dgx-h100-8x8 --set global_batch=256 --json | grep -A2 '"simplest"'
# Nothing is known of a machine alone, and nothing is open where the cut is given.
sbplan search llama-3.1-8b dgx-h100-8x8 --set global_batch=256 --runtime none | grep -E '^(interval|simplest)'
sbplan search llama-3.1-8b dgx-h100-8x8 --set global_batch=256 --set pipeline=1 | grep '^simplest'
