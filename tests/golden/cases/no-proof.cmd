sbplan search --runnable autoddl-attention flat-64 --memory-limit 9G --set zero=0 --set micro_batch=1024 \
    --set recompute=none --set regather=false >out.txt
status=$?
sed -E -e 's/(the least that was seen to do is|dominate:).*/\1 .../' out.txt
exit $status
