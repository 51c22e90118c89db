sbplan search tiny-mlp laptop-4 -o plan.json >/dev/null && sed "s/\"format\":.*/\"format\": \"another\",/" plan.json >tampered.json &&
sbplan run tampered.json
