sbplan price tiny-gpt laptop-4 --pp 2 --tp 2 -o plan.json >price.out
sbplan export plan.json --to chakra -o step && od -An -c step.2.et | sed 12q && ls && cat step.groups.json
