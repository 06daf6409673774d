# bash completion for foldback; `foldback completion bash` prints it. What is offered, foldback itself says.
_foldback() {
    local line=${COMP_LINE:0:COMP_POINT} current found char word
    local -a words
    read -ra words <<<"$line"
    if [[ -z $line || $line == *[[:space:]] ]]; then words+=(''); fi
    current=${words[${#words[@]}-1]}
    mapfile -t found < <("$1" complete "${words[@]:1}" 2>/dev/null)
    COMPREPLY=()
    for word in "${found[@]}"; do
        case $word in
        :files) compopt -o default -o filenames 2>/dev/null; mapfile -t -O "${#COMPREPLY[@]}" COMPREPLY < <(compgen -f -- "$current") ;;
        *) COMPREPLY+=("${word%%$'\t'*}") ;;
        esac
    done
    if [[ ${#COMPREPLY[@]} -eq 1 && ${COMPREPLY[0]} == *[@:=,] ]]; then compopt -o nospace 2>/dev/null; fi
    for char in : = @; do # bash replaces what follows the last of these only, and @ itself
        if [[ $COMP_WORDBREAKS == *"$char"* && $current == *"$char"* ]]; then
            current=${current%"${current##*"$char"}"}
            COMPREPLY=("${COMPREPLY[@]#"${current%@}"}")
            break
        fi
    done
}
complete -F _foldback foldback
