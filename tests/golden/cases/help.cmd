sbplan --help
