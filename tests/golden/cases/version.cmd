sbplan --version
