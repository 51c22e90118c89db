sbplan advise gpt2-small v100-roce-4x8 --quick --max-evaluations 3000 --time-limit none --set 'cluster.levels[1].size=2' | grep -v '\$'
