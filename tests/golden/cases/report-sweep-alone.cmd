sbplan search tiny-mlp laptop-4 --sweep global_batch=8,16 --json >sweep.json; sbplan report sweep.json -o page.html; ls
