"""Prints the newest schema as statements: what the migrations, run one after another, make of an empty database.

    newest.py MIGRATION…
"""

import pathlib
import sqlite3
import sys


def main(paths):
    database = sqlite3.connect(":memory:")
    for path in paths:
        database.executescript(pathlib.Path(path).read_text())
    made = database.execute("SELECT type, name, sql FROM sqlite_schema WHERE name NOT LIKE 'sqlite%' ORDER BY rowid").fetchall()
    for kind, name, _ in made:
        if kind == "table" and database.execute(f"SELECT count(*) FROM {name}").fetchone() != (0,):
            sys.exit(f"newest.py: a migration puts rows into {name}, which a new store would lack")
    print(*(f"{sql};" for *_, sql in made), sep="\n")


if __name__ == "__main__":
    main(sys.argv[1:])
