sbplan price resnet-50 dgx-h100-8x8 --dp 64 -o plan.json >price.out
sbplan export plan.json --to chakra -o step | grep -A 2 ^lost
# Without a trainer the machine alone says what its host takes.
sbplan price tiny-gpt laptop-4 --dp 4 --set cluster.device.host_launch_s=5e-6 -o plan.json >price.out
sbplan export plan.json --to chakra -o step | grep ^lost
sbplan report plan.json -o page.html >report.out
sed -n 's/.*Trainer: none/Trainer: none/p' page.html | sed 's/<[^>]*>//g'
