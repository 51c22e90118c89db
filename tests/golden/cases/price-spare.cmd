sbplan price tiny-mlp laptop-4 --strategy "$DATA/spare-roles.json" -o plan.json && sbplan explain plan.json | sed -n "/^fc1/,/^fc2/p"
