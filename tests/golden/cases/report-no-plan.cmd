sbplan report "$DATA/problem.json" -o page.html; sbplan report "$DATA/strategy.json" -o page.html; sbplan report "$DATA/curves.json" -o page.html
