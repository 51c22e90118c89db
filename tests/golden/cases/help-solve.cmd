sbplan solve --help
