# A layer may ask for the level that all others have as well, or for another one.
price() {
    echo "{\"parallel\": {\"zero\": 1}, \"layers\": [{\"name\": \"fc1\", \"roles\": {\"batch\": 4}, \"zero\": $1},
        {\"name\": \"fc2\", \"roles\": {\"batch\": 4}}, {\"name\": \"fc3\", \"roles\": {\"batch\": 4}}]}" >mine.json
    sbplan price tiny-mlp laptop-4 --strategy mine.json | grep -E '^(step|memory)'
}
price 0
price 1
price 2
price 3
