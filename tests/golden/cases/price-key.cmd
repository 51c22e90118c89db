sed 's/^{/{"paralel": {"zero": 1}, /' "$DATA/strategy.json" >bad.json && sbplan price tiny-mlp laptop-4 --strategy bad.json
