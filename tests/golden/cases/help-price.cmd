sbplan price --help
