sbplan advise --help
