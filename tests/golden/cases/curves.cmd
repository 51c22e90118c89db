sbplan search tiny-gpt "$DATA/curves.json"
