sbplan search --runnable tiny-gpt laptop-4 --set layers=3 --set attention=flash --set dropout=0.1 --set sequence=16
