sbplan search --runnable tiny-gpt "$DATA/curves.json" --set pipeline=1
