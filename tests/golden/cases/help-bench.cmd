sbplan bench --help
