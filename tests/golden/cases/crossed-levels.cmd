sbplan search --runnable "$DATA/two-linears.json" "$DATA/crossed-levels.json" --fix a=batch:2/1,column:2/2 --fix b=batch:2/2,row:2/1 --objective communication
