sbplan search autoddl-mlp flat-128 --space autoddl --objective communication --set global_batch=32768
