sbplan price mixtral-8x7b dgx-h100-8x8 --tp 8 --pp 8 --ep 8 --etp 1 --sequence-parallel --json | sed -n '/"notes"/p;/"layout"/,/}/p'
