sbplan serach
