sbplan compare autoddl-mlp flat-128
