# What comes from outside is shown, never obeyed: a plan's record, file names, names in messages.
e=$(printf '\033[2J')
sbplan search tiny-mlp laptop-4 -o "$e.json" | tail -1
sed 's/"command":.*/"command": "\\u001b[31mx\\nstatus     optimal\\u009b2J"/' "$e.json" >plan.json
sbplan explain plan.json | head -3
sbplan explain "no$e"
sbplan search tiny-mlp laptop-4 --set "name=a$e"
sbplan search tiny-mlp laptop-4 --sweep "global_batch=16,$e"
sbplan list "$e"
echo '{"name": "m", "global_batch": 1, "\u001b[2J": 1, "layers": []}' >model.json
sbplan search model.json laptop-4
mkdir -p models && echo '{' >"models/a$e.json" && SBPLAN_CONFIGS=. sbplan list models | grep x1b
echo x >"a$e.log"
sbplan calibrate --from "a$e.log"
sbplan search --runnable tiny-mlp laptop-4 -o "r$e.json" >/dev/null && sbplan run "r$e.json" | head -1
