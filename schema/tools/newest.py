"""Prints the newest schema as statements: what the migrations, run one after another, make of an empty database. FILE becomes a
store of that schema without rows.

    newest.py FILE MIGRATION…
"""

import pathlib
import sqlite3
import sys

APPLICATION_ID = 0x666C6462  # as in server/database/sqlite.c


def schema_of(paths):
    database = sqlite3.connect(":memory:")
    for path in paths:
        database.executescript(pathlib.Path(path).read_text())
    made = database.execute("SELECT type, name, sql FROM sqlite_schema WHERE name NOT LIKE 'sqlite%' ORDER BY rowid").fetchall()
    for kind, name, _ in made:
        if kind == "table" and database.execute(f"SELECT count(*) FROM {name}").fetchone() != (0,):
            sys.exit(f"newest.py: a migration puts rows into {name}, which a new store would lack")
    return "".join(f"{sql};\n" for *_, sql in made)


def write_store(path, schema, version):
    path.unlink(missing_ok=True)
    database = sqlite3.connect(path)
    database.executescript(f"PRAGMA journal_mode = WAL; PRAGMA user_version = {version};"
                           f"PRAGMA application_id = {APPLICATION_ID}; BEGIN; {schema} COMMIT")
    database.close()


def main(store, *migrations):
    schema = schema_of(migrations)
    write_store(pathlib.Path(store), schema, len(migrations))
    print(schema, end="")


if __name__ == "__main__":
    main(*sys.argv[1:])
