sbplan price resnet-50 dgx-h100-8x8 --dp 64 -o plan.json >price.out
sbplan export plan.json --to chakra -o step | grep -A 2 ^lost
