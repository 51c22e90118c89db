sbplan search tiny-gpt laptop-4 --runnable --set pipeline=2 --set micro_batch=2 -o plan.json >/dev/null
sbplan report plan.json -o page.html | sed 's/, .*/, SIZE/'
sed -e '/strategies evaluated/d' -e '/<style>/,/<\/style>/d' -e 's/<data value="[^"]*">//g' -e 's/<[^>]*>/ /g' -e 's/  */ /g' -e 's/ $//' page.html
