# Under nohup a terminal that closes does not stop it.
(trap '' HUP && exec sbplan search --runnable gpt2-small laptop-4 --set sequence=256 --algorithm random --max-evaluations 1T -o plan.json >out.txt) &
sleep 1
kill -HUP $! && sleep 1 && kill -0 $! && echo "goes on" && kill -KILL $!
