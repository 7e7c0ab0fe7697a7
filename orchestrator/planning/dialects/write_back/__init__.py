"""A measured configuration -> changed keys of the user's own file.

changes.py    which keys change, and what the file cannot say
inverse.py    the values of our axes as facts
text_edit.py  changes values in the text of a file, and nothing else
"""
