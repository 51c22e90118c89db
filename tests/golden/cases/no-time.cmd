# A search without time for a look at anything says so: there may be a plan.
sbplan search gpt2-small laptop-4 --time-limit 1e-9
