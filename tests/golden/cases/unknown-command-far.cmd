sbplan frobnicate
