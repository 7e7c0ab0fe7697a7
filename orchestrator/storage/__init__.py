"""The files of a run: written by one driver at a time, and read whatever their state.

layout.py          the names of the files, and how a file is replaced in one step
run_folder.py      writes records and run.json
folder_lock.py     the lock that one driver holds
run_metadata.py    reads run.json
search_summary.py  what a search says of itself in run.json
record_reader.py   reads records and checks them
run_reader.py      reads a run: its records, or its tables
tables/            the Parquet tables
location.py        a folder of this machine or a URI
remote.py          copies a run from and to a URI
redaction.py       removes secrets
prices.py          the file of predict --prices
user_files.py      refuses to write over the user's files
"""
