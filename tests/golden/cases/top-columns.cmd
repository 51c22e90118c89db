# Tables end where the terminal's lines do; words go on below.
export COLUMNS=80
sbplan search tiny-gpt laptop-4 --top 3 | sed -n '/^#/,/^3 /p'
COLUMNS=100 sbplan list clusters | head -n 6
