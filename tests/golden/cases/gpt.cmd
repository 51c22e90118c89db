sbplan search gpt2-small laptop-4 --set sequence=256 --tokens 10B
