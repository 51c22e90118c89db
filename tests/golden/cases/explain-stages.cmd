sbplan search gpt3-175b dgx-a100-8x8 --set pipeline=16 --set micro_batch=8 --set zero=1 --set recompute=full -o plan.json >/dev/null && sbplan explain plan.json | sed "/^Distributions/,\$d"
