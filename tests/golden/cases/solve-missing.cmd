sbplan solve nowhere.json
