# A limit of a file's size: the message of a full disk, no end by a signal, no temporary file.
ulimit -f 1
sbplan search tiny-gpt laptop-4 -o plan.json >/dev/null
status=$?
ls
exit $status
