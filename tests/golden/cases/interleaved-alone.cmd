# Stages, chunks and micro-batches are open where the schedule alone is given.
sbplan search gpt2-small laptop-4 --set schedule=interleaved >out.txt
grep -E "^parallel|status|optimal" out.txt
sbplan search gpt2-small laptop-4 --set schedule=interleaved --set pipeline=1
