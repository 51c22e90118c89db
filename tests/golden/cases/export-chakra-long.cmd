sbplan price llama-3.1-8b dgx-h100-8x8 --tp 8 --pp 8 --zero 1 -o plan.json >price.out
sbplan export plan.json --to chakra -o step
code=$?
ls
exit $code
