sbplan
