# fish completion for foldback: what it offers is what `foldback --help` and `foldback VERB --help` list.
function __foldback_verbs
    foldback --help 2>/dev/null | string replace -rf '^  ([a-z-]+)  +(.*)$' '$1\t$2'
end
function __foldback_options
    set -l words (commandline -opc)
    foldback $words[2] --help 2>/dev/null | string replace -rf '^ *(?:-[a-z], )?(--[a-z-]+)(?: [^ ]+)?  +(.*)$' '$1\t$2'
end
function __foldback_passes
    foldback passes --json 2>/dev/null | string match -ar '"name":"[^"]*"' | string replace -r '.*:"(.*)"' '$1'
end
function __foldback_wants_pass
    set -l words (commandline -opc)
    test (count $words) -ge 2; and contains -- $words[-1] -p --pass passes
end
complete -c foldback -f -n 'test (count (commandline -opc)) -eq 1' -a '(__foldback_verbs)'
complete -c foldback -f -n __foldback_wants_pass -a '(__foldback_passes)'
complete -c foldback -n 'test (count (commandline -opc)) -ge 2; and string match -q -- "-*" (commandline -ct)' -a '(__foldback_options)'
