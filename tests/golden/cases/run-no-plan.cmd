sbplan run
