# fish completion for foldback; `foldback completion fish` prints it. What is offered, foldback itself says.
function __foldback_complete
    set -l words (commandline -opc) (commandline -ct)
    for line in ($words[1] complete $words[2..-1] 2>/dev/null)
        if test $line = :files
            __fish_complete_path (commandline -ct)
        else
            echo $line
        end
    end
end
complete -c foldback -f -a '(__foldback_complete)'
