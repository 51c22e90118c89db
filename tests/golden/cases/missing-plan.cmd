sbplan explain nowhere.json
