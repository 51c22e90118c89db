sbplan search --runnable tiny-gpt "$DATA/curves.json"
