"""A measured configuration -> changed keys of the user's own file.

changed_file.py which facts and keys change, and what the file cannot say
text_edit.py  changes values in the text of a file, and nothing else
"""
