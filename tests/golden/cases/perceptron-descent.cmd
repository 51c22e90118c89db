sbplan search autoddl-mlp flat-128 --space autoddl --objective communication --algorithm coordinate-descent --seed 7 | grep -v evaluations
