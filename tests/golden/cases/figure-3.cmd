# AutoDDL, figure 3: 2.0 x 2^30 elements forward against 3.75 of Megatron.
options="--space autoddl --objective communication --memory-limit 1T"
sbplan search autoddl-attention flat-64 $options --set max_batch_split=4 -o best.json &&
sbplan explain best.json | grep "elements of activations" &&
sbplan search autoddl-attention flat-64 $options --fix qkv=batch:4,column:16 \
    --fix projection=batch:4,row:16 -o megatron.json &&
sbplan explain megatron.json | grep "elements of activations"
