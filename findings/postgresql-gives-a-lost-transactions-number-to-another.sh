#!/bin/sh
# pg_xact_status says "committed" of a transaction that never was: after a crash its number belongs to another one.
#
# Guess:    pg_current_xact_id() is 64 bits wide and never comes twice, so a client whose connection broke in COMMIT may ask
#           pg_xact_status(number) what became of it. That is what the function is for.
# Seen:     a number that was given out and not yet written to the log is forgotten by a server that stops at once, and
#           given to the next transaction. Until then the answer is an error, and afterwards it is the other transaction's.
# Versions: postgresql-15 15.18-0+deb12u1
# Changed:  server/store/postgres.c (comment at its top): a commit that was not answered is looked for by a number that the
#           session itself writes into a row of its own.
. "$(dirname "$0")/setup"
debian_with postgresql-15 postgresql-client-15
programs=/usr/lib/postgresql/15/bin
data=$work/data
[ "$(id -u)" != 0 ] || chown nobody "$work"
server() { # PostgreSQL does not run as root.
    if [ "$(id -u)" = 0 ]; then runuser -u nobody -- "$@"; else "$@"; fi
}
start() {
    server "$programs/pg_ctl" -D "$data" -w -l "$work/log" -o "-k $work -c listen_addresses=" start >/dev/null || exit 2
}
stop() {
    server "$programs/pg_ctl" -D "$data" -m "$1" stop >/dev/null
}
ask() {
    "$programs/psql" -X -h "$work" -U finding -qAt -v VERBOSITY=terse postgres "$@" 2>&1
}
server "$programs/initdb" -D "$data" -U finding --auth=trust >/dev/null || exit 2
start
trap 'stop immediate 2>/dev/null || true; rm -rf "$work"' EXIT

mkfifo "$work/commands"
ask <"$work/commands" >"$work/number" &
exec 3>"$work/commands"
echo 'BEGIN; SELECT pg_current_xact_id();' >&3
while [ ! -s "$work/number" ]; do sleep 0.05; done # the transaction is open: it has a number, and no commit
stop immediate
exec 3>&-
wait
number=$(head -n 1 "$work/number")
start
{
    ask -c "SELECT pg_xact_status('$number')" || true
    echo 'after a transaction of somebody else:'
    ask -c 'CREATE TABLE other (x int)'
    ask -c "SELECT pg_xact_status('$number')"
} | sed "s/\b$number\b/NUMBER/" >"$work/seen"
expect <<'END'
ERROR:  transaction ID NUMBER is in the future
after a transaction of somebody else:
committed
END
