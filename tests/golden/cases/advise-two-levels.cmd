sbplan advise tiny-mlp polaris --quick --set 'cluster.levels[0].size=2' --set 'cluster.levels[1].size=2' --time-limit none
