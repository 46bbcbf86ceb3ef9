"""What the project is compared with, apart from stock.

`relstorages` are contestants; `postgresql` is the program that runs a database
for one of them.
"""
