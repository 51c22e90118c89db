sbplan price tiny-gpt laptop-4 --tp 2 --zero 3 -o plan.json >price.out
sbplan export plan.json --to deepspeed -o ds.json --json | grep -e '^	"[filp]' -e '"step_s"' -e '"text"' -e ZeRO
