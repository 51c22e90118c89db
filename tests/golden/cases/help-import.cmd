sbplan import --help
