# bash completion for foldback: what it offers is what `foldback --help` and `foldback VERB --help` list.
_foldback() {
    local program=$1 current=$2 previous=$3 verb=${COMP_WORDS[1]} words
    if [ "$COMP_CWORD" -eq 1 ]; then
        words=$("$program" --help 2>/dev/null | sed -n 's/^  \([a-z-]*\)  .*/\1/p')
    elif [ "$verb" != serve ] && { [ "$previous" = --pass ] || [ "$previous" = -p ]; }; then
        words=$("$program" passes --json 2>/dev/null | grep -o '"name":"[^"]*"' | cut -d '"' -f 4)
    elif [ "$verb" = passes ] && [[ $current != -* ]]; then
        words=$("$program" passes --json 2>/dev/null | grep -o '"name":"[^"]*"' | cut -d '"' -f 4)
    elif [[ $current == -* ]]; then
        words=$("$program" "$verb" --help 2>/dev/null | sed -n 's/^ *\(-[a-z], \)\{0,1\}\(--[a-z-]*\).*/\2/p')
    else
        return # files
    fi
    mapfile -t COMPREPLY < <(compgen -W "$words" -- "$current")
}
complete -o default -F _foldback foldback
