sed "s/\"rest\": {[^}]*}/\"rest\": \"P\"/" "$DATA/spare-roles.json" >bad.json && sbplan price tiny-mlp laptop-4 --strategy bad.json
