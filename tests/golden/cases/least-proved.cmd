# what is proved not to fit raises the memory that no plan does with less than
sbplan search tiny-mlp laptop-4 --space gshard --memory-limit 43775 | grep infeasible:
sbplan search tiny-mlp laptop-4 --space autoddl --memory-limit 49921 | grep infeasible:
