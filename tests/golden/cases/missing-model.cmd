sbplan search tiny-mpl laptop-4
