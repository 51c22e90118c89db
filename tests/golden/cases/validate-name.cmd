sbplan validate korthikant
