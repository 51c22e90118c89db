# Clusters with more ways to split a layer than can be looked at have a plan within the limit, and the answer says what
# ended the search and what was looked at.
for cluster in four-sixteens all-devices; do
    sbplan search tiny-gpt $DATA/$cluster.json --time-limit 3 >out.txt
    echo $?
    grep -o -E 'feasible|stopped early by the time limit of 3 s|large meshes by plain splits alone' out.txt
done
# The reader of plans knows the marks.
sbplan search tiny-gpt $DATA/four-sixteens.json --time-limit 3 -o plan.json >out.txt && sbplan explain plan.json | grep status
grep -E '"(stopped|plain)"' plan.json
# The default is told, and can be lifted.
sbplan search tiny-gpt laptop-4 --time-limit none --search-memory none | grep -o 'optimal'
sbplan search tiny-gpt laptop-4 --time-limit soon
