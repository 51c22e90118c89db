sbplan compare --help
