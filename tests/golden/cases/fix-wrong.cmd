refuse() { sbplan search tiny-gpt "$@" && echo "accepted: $*"; }
{
refuse laptop-4 --fix block7.up=column:4
refuse laptop-4 --fix block0.norm1=batch:4
refuse laptop-4 --fix block0.up=columns:4
refuse laptop-4 --fix block0.up=vocab:4
refuse laptop-4 --fix block0.up=column
refuse laptop-4 --fix block0.up=column:4,
refuse laptop-4 --fix block0.up=column:2,,row:2
refuse laptop-4 --fix block0.up=,
refuse laptop-4 --fix block0.up=column:0
refuse laptop-4 --fix block0.up=column:2.5
refuse laptop-4 --fix block0.up=column:2/2
refuse laptop-4 --fix block0.up=column:8
refuse laptop-4 --fix block0.up=column:2,row:4
refuse laptop-4 --fix block0.up=column:2,column:2
refuse laptop-4 --fix block0.up=column:4 --fix block0.up=column:4
refuse laptop-4 --fix block0.up=column:4 --fix block1.up=row:4
refuse laptop-4 --fix head=column:4 --fix head=row:4
refuse laptop-4 --set ffn=62 --fix block0.up=column:4
refuse laptop-4 --set global_batch=6 --fix block0.up=batch:4
refuse laptop-4 --set micro_batch=2 --fix block0.up=batch:4
refuse laptop-4 --set pipeline=2 --set micro_batch=4 --fix block0.up=column:4
refuse dgx-a100-8x8 --fix block0.up=column:8
refuse dgx-a100-8x8 --set pipeline=16 --set layers=16 --set micro_batch=1 --fix block0.up=column:8
refuse dgx-a100-8x8 --set pipeline=16 --set layers=16 --set micro_batch=1 --fix block0.up=column:1/8
refuse laptop-4 --fix embedding=vocab:4 --fix head=row:4
refuse laptop-4 --space data-parallel --fix block0.up=column:4
} 2>&1
true
