sbplan search "$DATA/context.json" laptop-4 --fix x=context:4 -o plan.json >/dev/null && sbplan explain plan.json
