"""The user's own code: found and hashed without an import, imported only if the user allows it.

sources.py   where the modules are, what they define, and the digest of their sources
objects.py   imports the objects, checks their types, and makes the Trainer
probe.py     imports them in a process of its own, before the first trial
"""

from jobs.techniques.hooks import services_of

services_of("jobs.finetuning.user_code.sources", "source_digest")
services_of("jobs.finetuning.user_code.probe", "user_code_problem")
services_of("jobs.finetuning.user_code.objects", "user_objects", "collator_of", "called_with")
