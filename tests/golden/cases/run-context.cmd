for context in gather ring; do
    sbplan search --runnable tiny-gpt laptop-4 --set context=$context --fix block0.attention=context:4 -o plan.json >/dev/null &&
    sbplan run plan.json --verify | sed -n '/^verified/s/;.*//p'
done
