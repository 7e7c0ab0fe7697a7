"""Files of other trainers -> our configuration. Adding a dialect is one YAML file in ``trainers/``,
and its name in ``registry.py``. Read in this order:

trainers/        what each key of a trainer's file says: one table per trainer
to_ours/         what the keys say together -> our configuration
write_back/      a measured configuration -> changed keys of the user's own file
entries.py       what became of each key
translate.py     reads the keys of some files, and makes and writes one configuration
shell.py         the commands of a script
registry.py      the dialects, and which of them a file is written in
"""
