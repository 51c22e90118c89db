sbplan list --help
