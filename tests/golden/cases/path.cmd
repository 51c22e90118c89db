# With alpha 1e-5 s a ring over 128 members costs 127 alphas, seven rings over pairs cost 7. The
# list is recorded, and found again from the plan alone.
options="autoddl-mlp flat-128 --space autoddl --objective communication"
sbplan search --runnable $options | grep "^step" &&
sbplan search --runnable $options --set boxing=path -o path.json &&
sbplan explain path.json | sed -n "/^fc2/,/^$/p" || exit
sed 's/"boxing":.*"path"/"boxing": "full"/' path.json >full.json
sbplan explain full.json
