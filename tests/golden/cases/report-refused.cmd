sbplan search tiny-mlp laptop-4 -o plan.json >/dev/null
echo '{"command": "", "rows": []}' >rows.json
sbplan report plan.json rows.json -o page.html
echo '{"command": "", "rows": [{"values": {"a": 1}}]}' >values.json
sbplan report plan.json values.json -o page.html
echo '{"steps": [], "predicted": {"step_s": 1}, "model": "gpt"}' >run.json
sbplan report plan.json run.json -o page.html
echo '{"steps": [{"replay_s": 1, "wall_s": 1, "compute_s": 1}], "predicted": {"step_s": 1, "compute_s": 1, "communication_s": 0},
"model": "gpt", "ranks": 4, "cores": 4, "seed": 0, "wall_is_parallel": true}' >run.json
sbplan report plan.json run.json -o page.html
echo '[1]' >list.json
sbplan report plan.json list.json -o page.html
ls
