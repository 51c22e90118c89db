sbplan report --help
