sbplan search nowhere.json laptop-4
