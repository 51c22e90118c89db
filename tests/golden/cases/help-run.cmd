sbplan run --help
