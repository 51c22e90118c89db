# Factors and rests that are no factors and rests.
price() {
    echo "{\"layers\": [{\"name\": \"fc1\", \"roles\": {\"batch\": $1}, \"rest\": $2}]}" >mine.json
    sbplan price tiny-mlp "$3" --strategy mine.json
}
price '"4"' '"B"' laptop-4
price '[4, 1]' '"B"' laptop-4
price 8 '"B"' v100-roce-4x8
price '[4]' '"B"' v100-roce-4x8
price '[[4, 8]]' '"B"' v100-roce-4x8
price 4 4 laptop-4
price 4 '["S0"]' laptop-4
price 4 '{"S0": [2]}' laptop-4
echo '{"layers": [], "parallel": {"micro_batch": 3}}' >mine.json
sbplan price tiny-mlp laptop-4 --strategy mine.json
true
