sbplan validate --help
