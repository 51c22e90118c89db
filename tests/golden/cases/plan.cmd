sbplan search --runnable tiny-mlp laptop-4 --devices 2 -o plan.json && sed "/^.\"cost\"/,/^.}/d" plan.json
