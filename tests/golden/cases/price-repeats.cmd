# Repeats share a strategy: what is said of both must be the same.
price() {
    echo "{\"layers\": [{\"name\": \"block0.up\", \"roles\": {\"batch\": 4}, $1}, {\"name\": \"block1.up\", \"roles\": {\"batch\": 4}, $2}]}" >mine.json
    sbplan price tiny-gpt laptop-4 --strategy mine.json
}
price '"zero": 1' '"zero": 2'
price '"zero": 1' '"rest": "S0"'
price '"rest": "B"' '"rest": "S0"'
price '"rest": "S0", "zero": 1' '"rest": "S0", "zero": 1'
true
