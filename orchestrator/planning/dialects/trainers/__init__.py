"""The tables: key of a trainer's file -> the facts about the training that it states.

rule.py                one row of a table: a fact, or why the key is left out
training_arguments.py  Hugging Face's TrainingArguments, which most others take, too
accelerate.py, axolotl.py, llama_factory.py, ms_swift.py, trl.py   the other trainers
"""
