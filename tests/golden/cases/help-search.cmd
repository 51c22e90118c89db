sbplan search --help
