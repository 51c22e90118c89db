sbplan list --help >expected.txt
for words in "help list" "list help"; do
    sbplan $words >given.txt && cmp given.txt expected.txt && echo "$words"
done
sbplan help | head -n 1
sbplan help lsit
