sbplan explain --help
